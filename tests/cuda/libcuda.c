/* The stand-in libcuda.so.1: runs nothing, takes the time that the kernels would take, and notes what would run.
 *
 * CUDA_STAND_IN names a file of lines "word value": "sms 132", "shared 233472", a call's name with its answer, the same
 * with _hang or _crash. What runs is written to the same name with ".now": kind, blocks and the time, at every launch.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100 };

static uint64_t queued_ns;

static double scripted(const char *word, double otherwise) {
    const char *path = getenv("CUDA_STAND_IN");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256];
    double value = otherwise;
    size_t length = strlen(word);
    if (!file)
        return otherwise;
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, word, length) && line[length] == ' ')
            value = strtod(line + length + 1, NULL);
    fclose(file);
    return value;
}

static int answer(const char *call) {
    char word[96];
    snprintf(word, sizeof word, "%s_hang", call);
    while (scripted(word, 0))
        sleep(1);
    snprintf(word, sizeof word, "%s_crash", call);
    if (scripted(word, 0))
        raise(SIGSEGV);
    return (int)scripted(call, SUCCESS);
}

static void note(const char *kind, unsigned blocks) {
    char path[512], new[520];
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    snprintf(path, sizeof path, "%s.now", getenv("CUDA_STAND_IN"));
    snprintf(new, sizeof new, "%s.%d", path, getpid());
    FILE *file = fopen(new, "w");
    if (!file)
        return;
    fprintf(file, "%s %u %.3f\n", kind, blocks, (double)t.tv_sec + (double)t.tv_nsec / 1e9);
    fclose(file);
    rename(new, path);
}

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : answer("cuInit"); }

int cuDriverGetVersion(int *version) {
    *version = 13000;
    return answer("cuDriverGetVersion");
}

/* As many as there are UUIDs with commas between them. */
int cuDeviceGetCount(int *count) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    *count = visible && (!strncmp(visible, "GPU-", 4) || !strncmp(visible, "MIG-", 4));
    for (; *count && *visible; visible++)
        *count += *visible == ',';
    return answer("cuDeviceGetCount");
}

int cuDeviceGet(int *device, int ordinal) {
    int count;
    cuDeviceGetCount(&count);
    *device = ordinal;
    return ordinal < 0 || ordinal >= count ? NO_DEVICE : SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 16 ? (int)scripted("sms", 132) : attribute == 97 ? (int)scripted("shared", 232448) : 49152;
    return SUCCESS;
}

int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    (void)flags, (void)device;
    *context = malloc(1);
    return answer("cuCtxCreate");
}

int cuModuleLoadData(void **module, const char *image) {
    *module = malloc(1);
    return strstr(image, ".target sm_50") && strstr(image, ".version 6.0") ? answer("cuModuleLoadData") : INVALID_VALUE;
}

int cuModuleGetFunction(const char **function, void *module, const char *name) {
    (void)module;
    *function = strdup(name);
    return strcmp(name, "spin") && strcmp(name, "tiny") ? 500 : SUCCESS;
}

int cuFuncSetAttribute(const char *function, int attribute, int value) {
    return !strcmp(function, "spin") && attribute == 8 && value == (int)scripted("shared", 232448) ? SUCCESS : INVALID_VALUE;
}

int cuStreamCreate(void **stream, unsigned flags) {
    (void)flags;
    *stream = malloc(1);
    return SUCCESS;
}

int cuLaunchKernel(const char *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra) {
    (void)stream;
    if (y != 1 || z != 1 || by != 1 || bz != 1 || extra)
        return INVALID_VALUE;
    int status = answer("cuLaunchKernel");
    if (status)
        return status;
    if (!strcmp(function, "spin")) {
        uint64_t length = *(uint64_t *)parameters[0];
        if (bx != 1024 || shared != (unsigned)scripted("shared", 232448) || length > 50000000)
            return INVALID_VALUE;
        queued_ns += length;
    } else {
        queued_ns += 20000;
    }
    note(function, x);
    return SUCCESS;
}

static uint64_t allocated;

/* As much as "memory" says in bytes; more is OUT_OF_MEMORY. */
int cuMemAlloc_v2(uint64_t *address, size_t size) {
    if ((double)(allocated + size) > scripted("memory", 8e10))
        return OUT_OF_MEMORY;
    allocated += size;
    *address = 0x1000 + size;
    return answer("cuMemAlloc");
}

int cuMemGetInfo_v2(size_t *free, size_t *total) {
    *total = (size_t)scripted("memory", 8e10);
    *free = *total - allocated;
    return SUCCESS;
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream) {
    (void)to, (void)from, (void)size, (void)stream;
    queued_ns += 100000;
    note("copy", 0);
    return answer("cuMemcpyDtoDAsync");
}

int cuStreamSynchronize(void *stream) {
    (void)stream;
    struct timespec t = {(time_t)(queued_ns / 1000000000), (long)(queued_ns % 1000000000)};
    queued_ns = 0;
    nanosleep(&t, NULL);
    return answer("cuStreamSynchronize");
}

int cuGetErrorName(int code, const char **name) {
    *name = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : code == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR";
    return SUCCESS;
}
