/* What every call goes through: initialisation, latency, planned errors and hangs, and the count of calls. */
#include "stand_in.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define COUNT_SLOTS 256

/* The layout of the file named by NVML_STAND_IN_COUNTS; read in stand_in.py. */
struct count {
    char function[56];
    uint64_t calls;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
static struct count *counts;
static int counts_fd = -1;
static int users, begun_load, gpus_at_init;
int open_samples, open_event_sets;

static void sleep_s(double seconds) {
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) != 0)
        continue;
}

static void open_counts(void) {
    const char *path = getenv("NVML_STAND_IN_COUNTS");
    if (!path || counts)
        return;
    counts_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (counts_fd < 0 || ftruncate(counts_fd, COUNT_SLOTS * sizeof(struct count)))
        return;
    void *map = mmap(NULL, COUNT_SLOTS * sizeof(struct count), PROT_READ | PROT_WRITE, MAP_SHARED, counts_fd, 0);
    counts = map == MAP_FAILED ? NULL : map;
}

static int find_slot(const char *function) {
    int slot = 0;
    flock(counts_fd, LOCK_EX);
    while (slot < COUNT_SLOTS - 1 && counts[slot].function[0] && strcmp(counts[slot].function, function))
        slot++;
    snprintf(counts[slot].function, sizeof counts[slot].function, "%s", function);
    flock(counts_fd, LOCK_UN);
    return slot;
}

static void write_log(const char *event) {
    const char *path = getenv("NVML_STAND_IN_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file)
        return;
    fprintf(file, "%d %s samples=%d event_sets=%d\n", (int)getpid(), event, open_samples, open_event_sets);
    fclose(file);
}

/* A rule names a function with or without its _v2 or _v3. */
static int matches(const struct rule *rule, const char *function, int gpu) {
    size_t length = strlen(rule->function);
    const char *tail = function + length;
    if (rule->gpu >= 0 && rule->gpu != gpu)
        return 0;
    if (!strcmp(rule->function, "*"))
        return 1;
    return !strncmp(rule->function, function, length) &&
           (!*tail || (tail[0] == '_' && tail[1] == 'v' && tail[2] && !tail[3]));
}

static int planned_trouble(const char *function, int gpu, double *hang_s) {
    int code = OK;
    for (int i = 0; i < world.rule_count; i++) {
        struct rule *rule = &world.rules[i];
        if (!matches(rule, function, gpu))
            continue;
        long seen = rule->seen++;
        if (seen < rule->after || (rule->times > 0 && seen >= rule->after + rule->times))
            continue;
        if (rule->hang_s > 0)
            *hang_s += rule->hang_s;
        else if (!code)
            code = rule->code;
    }
    return code;
}

/* OK leaves the lock held until leave(). */
int enter(const char *function, int *slot, struct device *device, double extra_us) {
    int starting = !strncmp(function, "nvmlInit", 8), ending = !strcmp(function, "nvmlShutdown");
    int status = OK, known = device == NO_DEVICE || is_device(device);
    double hang_s = 0, delay_us = extra_us;
    int gpu = device != NO_DEVICE && known ? (int)(device - world.devices) : -1;
    if (gpu >= MAX_GPUS)
        gpu = (gpu - MAX_GPUS) / MIG_PER_GPU;
    pthread_mutex_lock(&lock);
    reload_scenario(starting);
    open_counts();
    if (counts) {
        if (*slot < 0)
            *slot = find_slot(function);
        __atomic_add_fetch(&counts[*slot].calls, 1, __ATOMIC_RELAXED);
    }
    if (!starting && users == 0)
        status = UNINITIALIZED;
    else if (!world.loads && !ending)
        status = DRIVER_NOT_LOADED;
    else if (users > 0 && begun_load != world.loads && !ending)
        status = UNKNOWN;
    else if (!known)
        status = INVALID_ARGUMENT;
    else
        status = planned_trouble(function, gpu, &hang_s);
    delay_us += world.latency_us;
    if (gpu >= 0 && world.devices[gpu].values[KEY_latency_us].status == OK)
        delay_us += world.devices[gpu].values[KEY_latency_us].number;
    int serial = world.serial;
    if (delay_us > 0 || hang_s > 0) {
        pthread_mutex_unlock(&lock);
        if (serial)
            pthread_mutex_lock(&driver_lock);
        sleep_s(1e-6 * delay_us + hang_s);
        if (serial)
            pthread_mutex_unlock(&driver_lock);
        pthread_mutex_lock(&lock);
        reload_scenario(0);
    }
    if (status == OK && device != NO_DEVICE && !device->present)
        status = GPU_IS_LOST;
    return status == OK ? OK : leave(status);
}

int leave(int status) {
    pthread_mutex_unlock(&lock);
    return status;
}

int read_double(const struct device *device, int key, double scale, double *out) {
    if (device->values[key].status)
        return device->values[key].status;
    *out = scale * value_at(device, key, monotonic_s());
    return OK;
}

int read_ull(const struct device *device, int key, double scale, unsigned long long *out) {
    double number;
    int status = read_double(device, key, scale, &number);
    if (!out)
        return INVALID_ARGUMENT;
    if (!status)
        *out = (unsigned long long)(number + 0.5);
    return status;
}

int read_uint(const struct device *device, int key, double scale, unsigned *out) {
    unsigned long long wide;
    int status = out ? read_ull(device, key, scale, &wide) : INVALID_ARGUMENT;
    if (!status)
        *out = (unsigned)wide;
    return status;
}

int copy_text(char *out, unsigned length, const char *text) {
    if (!text[0])
        return NOT_SUPPORTED;
    if (!out || strlen(text) >= length)
        return out ? INSUFFICIENT_SIZE : INVALID_ARGUMENT;
    strcpy(out, text);
    return OK;
}

int nvmlInitWithFlags(unsigned flags) {
    ENTER(NO_DEVICE)
    (void)flags;
    if (users++ == 0) {
        begun_load = world.loads;
        gpus_at_init = world.gpus;
        write_log("init");
    }
    return leave(OK);
}

int counted_gpus(void) { return world.count_at_init && gpus_at_init < world.gpus ? gpus_at_init : world.gpus; }

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    ENTER(NO_DEVICE)
    if (--users == 0)
        write_log("shutdown");
    return leave(OK);
}

const char *nvmlErrorString(int result) {
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires reset", "GPU access blocked by the operating system",
        "Driver/library version mismatch", "In use by another client", "Insufficient Memory", "No data",
    };
    return result >= 0 && result < (int)(sizeof texts / sizeof *texts) ? texts[result] : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    ENTER(NO_DEVICE)
    return leave(copy_text(version, length, world.driver));
}

int nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    ENTER(NO_DEVICE)
    return leave(copy_text(version, length, world.nvml));
}

int nvmlSystemGetCudaDriverVersion(int *version) {
    ENTER(NO_DEVICE)
    *version = world.cuda;
    return leave(OK);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

struct driver_branch {
    unsigned version;
    char branch[80];
};

int nvmlSystemGetDriverBranch(struct driver_branch *info, unsigned length) {
    ENTER(NO_DEVICE)
    if (info->version != 0x1000054)
        return leave(VERSION_MISMATCH);
    return leave(copy_text(info->branch, length, world.branch));
}

int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    ENTER(NO_DEVICE)
    char path[32], text[256] = "";
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return leave(NOT_FOUND);
    if (!fgets(text, sizeof text, file))
        text[0] = 0;
    fclose(file);
    text[strcspn(text, "\n")] = 0;
    return leave(copy_text(name, length, text));
}
