/* The stand-in libnvperf_target.so: the periodic sampler of GPUs that are not there. A session is a lock on a file, as
 * the real one is a lock in the driver: nobody else can begin one, and the kernel frees it whoever dies. */
#define _GNU_SOURCE
#include "stand_in.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define MAX_GPUS 16
typedef uint8_t Bool;
struct pci { uint32_t domain; uint16_t bus, device; };
struct options { size_t structSize; const uint8_t *prefix; size_t prefixSize; uint32_t maxSamples, appendMode; };

struct plain { size_t structSize; void *pPriv; };
struct count { size_t structSize; void *pPriv; size_t count; };
struct names { size_t structSize; void *pPriv; size_t device; const char *name, *chip; };
struct ids { size_t structSize; void *pPriv; struct pci *ids; size_t count; };
struct supported {
    size_t structSize; void *pPriv; size_t device; Bool supported; int architecture, sli, vgpu, cc, cmp, wsl, mig;
};
struct sources { size_t structSize; void *pPriv; size_t device; uint32_t *sources; size_t count; };
struct available { size_t structSize; void *pPriv; size_t device, size; uint8_t *image; };
struct latest { size_t structSize; void *pPriv; size_t device; Bool supported; };
struct buffer { size_t structSize; void *pPriv; size_t device; const uint8_t *config; size_t configSize, most, size; };
struct image_size { size_t structSize; void *pPriv; size_t device; const struct options *options; size_t size; };
struct image_init {
    size_t structSize; void *pPriv; size_t device; const struct options *options; uint8_t *image; size_t imageSize;
};
struct begin {
    size_t structSize; void *pPriv; size_t device, ranges; const uint32_t *triggers; size_t triggerCount;
    uint64_t interval; size_t bufferSize; uint32_t appendMode;
};
struct device { size_t structSize; void *pPriv; size_t device; };
struct set { size_t structSize; void *pPriv; size_t device; const uint8_t *config; size_t configSize, pass; };
struct status {
    size_t structSize; void *pPriv; size_t device; Bool askUnread, askOverflow, askWrite, askRead; size_t total, unread;
    Bool overflow; size_t write, read;
};
struct decode {
    size_t structSize; void *pPriv; size_t device; uint8_t *image; size_t imageSize, bytes; uint64_t start, end;
    uint32_t stop; size_t merged, consumed;
};
struct acknowledge { size_t structSize; void *pPriv; size_t device, bytes; };
struct info { size_t structSize; void *pPriv; const uint8_t *image; size_t imageSize, total, populated, completed; };
struct when { size_t structSize; void *pPriv; const uint8_t *image; size_t range; uint64_t start, end; };

static int locks[MAX_GPUS];
static int sampling[MAX_GPUS], overflowed[MAX_GPUS], configured[MAX_GPUS];
static uint64_t last[MAX_GPUS], newest[MAX_GPUS];
static int pending[MAX_GPUS];
static int loaded;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

/* "trigger_hang 1" sleeps in a call, "trigger_crash 1" ends the process as a fault would, "trigger 17" is its answer. */
static int misbehave(const char *call, size_t device) {
    char word[64];
    snprintf(word, sizeof word, "%s_hang", call);
    double hang = scripted(word, -1);
    if (hang >= 0 && hang == (double)device)
        for (;;)
            sleep(1000);
    snprintf(word, sizeof word, "%s_crash", call);
    if (scripted(word, 0))
        raise(SIGSEGV);
    return (int)scripted(call, SUCCESS);
}

int NVPW_InitializeTarget(struct plain *p) {
    CHECK(p, plain, pPriv)
    return (int)scripted("initialize_target", SUCCESS);
}

int NVPW_CUDA_LoadDriver(struct plain *p) {
    CHECK(p, plain, pPriv)
    int status = misbehave("load", 0);
    loaded = !status;
    return status;
}

int NVPW_GetDeviceCount(struct count *p) {
    CHECK(p, count, count)
    p->count = loaded ? (size_t)scripted("gpus", 1) : 0;
    return SUCCESS;
}

int NVPW_Device_GetNames(struct names *p) {
    static char chip[32];
    CHECK(p, names, chip)
    if (!loaded)
        return DRIVER_NOT_LOADED;
    if (!scripted_text("chip", chip, sizeof chip))
        strcpy(chip, "AD102");
    p->name = "stand-in";
    p->chip = chip;
    return SUCCESS;
}

int NVPW_Device_GetPciBusIds(struct ids *p) {
    CHECK(p, ids, count)
    /* Not in NVML's order: whoever joins by number joins the wrong GPU. */
    for (size_t i = 0; i < p->count; i++)
        p->ids[i] = (struct pci){0, (uint16_t)(1 + p->count - 1 - i), 0};
    return SUCCESS;
}

int NVPW_GPU_PeriodicSampler_IsGpuSupported(struct supported *p) {
    CHECK(p, supported, mig)
    if (!loaded)
        return DRIVER_NOT_LOADED;
    p->supported = (Bool)scripted("supported", 1);
    p->architecture = p->sli = p->cc = p->cmp = p->wsl = p->mig = 2;
    p->vgpu = (int)scripted("vgpu", 2);
    return SUCCESS;
}

int NVPW_GPU_PeriodicSampler_GetSupportedTriggerSources(struct sources *p) {
    CHECK(p, sources, count)
    if (p->sources && p->count)
        p->sources[0] = 1;
    p->count = 1;
    return SUCCESS;
}

int NVPW_GPU_PeriodicSampler_GetCounterAvailability(struct available *p) {
    CHECK(p, available, image)
    p->size = 16;
    if (p->image)
        memcpy(p->image, &(uint64_t[2]){MAGIC, 1}, 16);
    return misbehave("availability", p->device);
}

int NVPW_GPU_PeriodicSampler_IsRecordBufferKeepLatestModeSupported(struct latest *p) {
    CHECK(p, latest, supported)
    p->supported = (Bool)scripted("keep_latest", 1);
    return SUCCESS;
}

int NVPW_GPU_PeriodicSampler_CalculateRecordBufferSize(struct buffer *p) {
    CHECK(p, buffer, size)
    p->size = p->most * 4096;
    return p->config && p->configSize == 16 ? SUCCESS : INVALID_ARGUMENT;
}

static int options_are_wrong(const struct options *o) {
    return !o || o->structSize != END_OF(options, appendMode) || !o->prefix || *(const uint64_t *)o->prefix != MAGIC ||
           o->maxSamples > MAX_SAMPLES;
}

int NVPW_GPU_PeriodicSampler_CounterDataImage_CalculateSize(struct image_size *p) {
    CHECK(p, image_size, size)
    if (options_are_wrong(p->options))
        return INVALID_ARGUMENT;
    p->size = sizeof(struct image);
    return SUCCESS;
}

int NVPW_GPU_PeriodicSampler_CounterDataImage_Initialize(struct image_init *p) {
    CHECK(p, image_init, imageSize)
    if (options_are_wrong(p->options) || p->imageSize != sizeof(struct image) || (uintptr_t)p->image % 8)
        return INVALID_ARGUMENT;
    memset(p->image, 0, sizeof(struct image));
    ((struct image *)p->image)->magic = MAGIC;
    return SUCCESS;
}

int NVPW_GPU_PeriodicSampler_BeginSession_V2(struct begin *p) {
    CHECK(p, begin, appendMode)
    if (p->ranges != 1 || p->triggerCount != 1 || p->triggers[0] != 1 || !p->bufferSize || p->device >= MAX_GPUS)
        return INVALID_ARGUMENT;
    int status = misbehave("begin", p->device);
    if (status)
        return status;
    char path[512];
    snprintf(path, sizeof path, "%s.lock%zu", getenv("NVPERF_SCENARIO"), p->device);
    int lock = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB)) {
        if (lock >= 0)
            close(lock);
        return 20;
    }
    locks[p->device] = lock;
    configured[p->device] = overflowed[p->device] = 0;
    return SUCCESS;
}

int NVPW_GPU_PeriodicSampler_EndSession(struct device *p) {
    CHECK(p, device, device)
    if (locks[p->device])
        close(locks[p->device]);
    locks[p->device] = 0;
    return SUCCESS;
}

int NVPW_GPU_PeriodicSampler_SetConfig(struct set *p) {
    CHECK(p, set, pass)
    if (!locks[p->device] || p->configSize != 16 || *(const uint64_t *)p->config != MAGIC || p->pass)
        return INVALID_ARGUMENT;
    configured[p->device] = 1;
    overflowed[p->device] = 0;
    last[p->device] = 0;
    return SUCCESS;
}

int NVPW_GPU_PeriodicSampler_StartSampling(struct device *p) {
    CHECK(p, device, device)
    sampling[p->device] = 1;
    return configured[p->device] ? SUCCESS : 19;
}

int NVPW_GPU_PeriodicSampler_StopSampling(struct device *p) {
    CHECK(p, device, device)
    sampling[p->device] = 0;
    return SUCCESS;
}

int NVPW_GPU_PeriodicSampler_CpuTrigger(struct device *p) {
    CHECK(p, device, device)
    int status = misbehave("trigger", p->device);
    if (status || !sampling[p->device])
        return status ? status : 19;
    if (scripted("overflow", 0) && !last[p->device])
        overflowed[p->device] = 1;
    last[p->device] = newest[p->device];
    newest[p->device] = now_ns();
    if (!configured[p->device] || configured[p->device] == 1) {
        last[p->device] = 0;
        configured[p->device] = 2;
    }
    pending[p->device] = 1;
    return SUCCESS;
}

int NVPW_GPU_PeriodicSampler_GetRecordBufferStatus_V2(struct status *p) {
    CHECK(p, status, read)
    p->total = 1 << 20;
    p->unread = pending[p->device] && !overflowed[p->device] ? 256 : 0;
    p->overflow = (Bool)(overflowed[p->device] && p->askOverflow);
    return SUCCESS;
}

static double value_of(const char *word, size_t device, double otherwise) {
    char own[64];
    snprintf(own, sizeof own, "%s%zu", word, device);
    return scripted(own, scripted(word, otherwise));
}

int NVPW_GPU_PeriodicSampler_DecodeCounters_V3(struct decode *p) {
    CHECK(p, decode, consumed)
    struct image *image = (struct image *)p->image;
    int status = misbehave("decode", p->device);
    if (status)
        return status;
    /* Into an image that was used before, the values would be those since it was made. */
    if (!p->bytes || image->magic != MAGIC || image->count)
        return INVALID_ARGUMENT;
    double sm = value_of("sm", p->device, 41.2);
    double spread = scripted("window_s", 0);
    image->samples[0] = (struct sample){last[p->device], newest[p->device], {sm, 98, 12.1, 33, 4.1, 37.1, 9.9}};
    if (spread && last[p->device])
        image->samples[0].start = newest[p->device] - (uint64_t)(spread * 1e9);
    image->samples[1] = (struct sample){newest[p->device], 0, {77, 77, 77, 77, 77, 77, 77}};
    image->count = 2;
    p->consumed = p->bytes;
    p->stop = 2;
    pending[p->device] = 0;
    return SUCCESS;
}

int NVPW_GPU_PeriodicSampler_AcknowledgeRecordBuffer(struct acknowledge *p) {
    CHECK(p, acknowledge, bytes)
    return p->bytes ? SUCCESS : INVALID_ARGUMENT;
}

int NVPW_PeriodicSampler_CounterData_GetInfo(struct info *p) {
    CHECK(p, info, completed)
    const struct image *image = (const struct image *)p->image;
    p->total = MAX_SAMPLES;
    p->populated = p->completed = image->count;
    return SUCCESS;
}

int NVPW_PeriodicSampler_CounterData_GetSampleTime(struct when *p) {
    CHECK(p, when, end)
    const struct image *image = (const struct image *)p->image;
    if (p->range >= image->count)
        return INVALID_ARGUMENT;
    p->start = image->samples[p->range].start;
    p->end = image->samples[p->range].end;
    return SUCCESS;
}
