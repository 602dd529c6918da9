/* The stand-in libnvperf_host.so: names, passes and values. Layouts as in the CUDA toolkit's nvperf_host.h. */
#include "stand_in.h"

static const char *const METRICS[] = {
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "gr__cycles_active.sum.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
    "dramc__read_throughput.avg.pct_of_peak_sustained_elapsed",
    "dramc__write_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed",
};
#define METRIC_COUNT (sizeof METRICS / sizeof *METRICS)

typedef uint8_t Bool;
struct eval { size_t index; uint8_t kind, rollup; uint16_t submetric; };
struct request { void *pPriv; const char *name; uint32_t domain; Bool keep; };

struct plain { size_t structSize; void *pPriv; };
struct names { size_t structSize; void *pPriv; const char *const *names; size_t count; };
struct scratch { size_t structSize; void *pPriv; const char *chip; size_t size; };
struct evaluator {
    size_t structSize; void *pPriv; uint8_t *scratch; size_t scratchSize; const char *chip;
    const uint8_t *image; size_t imageSize; void *evaluator;
};
struct one { size_t structSize; void *pPriv; void *handle; };
struct convert { size_t structSize; void *pPriv; void *evaluator; const char *name; struct eval *out; size_t size; };
struct raw {
    size_t structSize; void *pPriv; void *evaluator; const struct eval *requests; size_t count, size, stride;
    const char **names; size_t nameCount; const char **optional; size_t optionalCount;
};
struct attributes { size_t structSize; void *pPriv; void *evaluator; const uint8_t *image; size_t imageSize; };
struct evaluate {
    size_t structSize; void *pPriv; void *evaluator; const struct eval *requests; size_t count, size, stride;
    const uint8_t *image; size_t imageSize, range; Bool isolated; double *values;
};
struct create { size_t structSize; void *pPriv; const char *chip; uint32_t kind; void *config; };
struct available { size_t structSize; void *pPriv; void *config; const uint8_t *image; };
struct domains { size_t structSize; void *pPriv; void *config; size_t count; uint32_t *domains; };
struct add { size_t structSize; void *pPriv; void *config; size_t size, count; const struct request *requests; };
struct copy { size_t structSize; void *pPriv; void *handle; size_t allocated; uint8_t *buffer; size_t copied; };
struct passes { size_t structSize; void *pPriv; void *config; size_t passes; };
struct builder { size_t structSize; void *pPriv; void *builder; const char *chip; };

struct config { uint64_t counters; int generated; };

static int known_chip(const char *chip) { return chip && strcmp(chip, "XX999"); }

int NVPW_InitializeHost(struct plain *p) {
    CHECK(p, plain, pPriv)
    return (int)scripted("initialize_host", SUCCESS);
}

int NVPW_RawCounterConfig_GetSupportedChipNames(struct names *p) {
    static const char *const chips[] = {"TU102", "GA100", "AD102"};
    CHECK(p, names, count)
    p->names = chips;
    p->count = 3;
    return SUCCESS;
}

int NVPW_Device_MetricsEvaluator_CalculateScratchBufferSize(struct scratch *p) {
    CHECK(p, scratch, size)
    p->size = 256;
    return known_chip(p->chip) ? SUCCESS : INVALID_ARGUMENT;
}

int NVPW_Device_MetricsEvaluator_Initialize(struct evaluator *p) {
    CHECK(p, evaluator, evaluator)
    if (!p->scratch || p->scratchSize != 256 || !known_chip(p->chip))
        return INVALID_ARGUMENT;
    p->evaluator = malloc(1);
    return SUCCESS;
}

int NVPW_MetricsEvaluator_Destroy(struct one *p) {
    CHECK(p, one, handle)
    free(p->handle);
    return SUCCESS;
}

int NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest(struct convert *p) {
    CHECK(p, convert, size)
    if (p->size != END_OF(eval, submetric))
        return INVALID_ARGUMENT;
    for (size_t i = 0; i < METRIC_COUNT; i++)
        if (!strcmp(p->name, METRICS[i]) && (i == 0 || !scripted("sm_only", 0))) {
            *p->out = (struct eval){.index = i};
            return SUCCESS;
        }
    return INVALID_METRIC;
}

int NVPW_MetricsEvaluator_GetMetricRawDependencies(struct raw *p) {
    CHECK(p, raw, optionalCount)
    if (p->count != 1 || p->size != END_OF(eval, submetric) || p->stride != sizeof(struct eval))
        return INVALID_ARGUMENT;
    if (p->names && p->nameCount)
        p->names[0] = METRICS[p->requests->index];
    p->nameCount = 1;
    p->optionalCount = 0;
    return SUCCESS;
}

int NVPW_MetricsEvaluator_SetDeviceAttributes(struct attributes *p) {
    CHECK(p, attributes, imageSize)
    return p->image && p->imageSize == sizeof(struct image) ? SUCCESS : INVALID_ARGUMENT;
}

int NVPW_MetricsEvaluator_EvaluateToGpuValues(struct evaluate *p) {
    CHECK(p, evaluate, values)
    const struct image *image = (const struct image *)p->image;
    if (!image || image->magic != MAGIC || p->range >= image->count || !p->isolated)
        return INVALID_ARGUMENT;
    for (size_t i = 0; i < p->count; i++)
        p->values[i] = image->samples[p->range].values[p->requests[i].index];
    return SUCCESS;
}

int NVPW_Device_RawCounterConfig_Create(struct create *p) {
    CHECK(p, create, config)
    if (!known_chip(p->chip) || p->kind != 2)
        return INVALID_ARGUMENT;
    p->config = calloc(1, sizeof(struct config));
    return SUCCESS;
}

int NVPW_RawCounterConfig_Destroy(struct one *p) {
    CHECK(p, one, handle)
    free(p->handle);
    return SUCCESS;
}

int NVPW_RawCounterConfig_SetCounterAvailability(struct available *p) {
    CHECK(p, available, image)
    return p->image && *(const uint64_t *)p->image == MAGIC ? SUCCESS : INVALID_ARGUMENT;
}

int NVPW_RawCounterConfig_GetAllAvailableRawCounterDomains(struct domains *p) {
    CHECK(p, domains, domains)
    if (p->domains && p->count)
        p->domains[0] = 3;
    p->count = 1;
    return SUCCESS;
}

int NVPW_RawCounterConfig_BeginPassGroup(struct domains *p) {
    CHECK(p, domains, domains)
    return p->count == 1 && p->domains ? SUCCESS : INVALID_ARGUMENT;
}

int NVPW_RawCounterConfig_EndPassGroup(struct domains *p) {
    CHECK(p, domains, domains)
    return SUCCESS;
}

int NVPW_RawCounterConfig_AddRawCounters(struct add *p) {
    CHECK(p, add, requests)
    if (p->size != END_OF(request, keep) || !p->requests)
        return INVALID_ARGUMENT;
    ((struct config *)p->config)->counters += p->count;
    return SUCCESS;
}

int NVPW_RawCounterConfig_GenerateConfigImage(struct one *p) {
    CHECK(p, one, handle)
    ((struct config *)p->handle)->generated = 1;
    return SUCCESS;
}

static int copied(struct copy *p, const void *data, size_t size) {
    p->copied = size;
    if (p->buffer && p->allocated >= size)
        memcpy(p->buffer, data, size);
    return SUCCESS;
}

int NVPW_RawCounterConfig_GetConfigImage(struct copy *p) {
    CHECK(p, copy, copied)
    struct config *config = p->handle;
    uint64_t image[2] = {MAGIC, config->counters};
    return config->generated ? copied(p, image, sizeof image) : ERROR;
}

int NVPW_RawCounterConfig_GetNumPasses(struct passes *p) {
    CHECK(p, passes, passes)
    uint64_t counters = ((struct config *)p->config)->counters;
    p->passes = counters <= (uint64_t)scripted("one_pass", 8) ? 1 : 2;
    return SUCCESS;
}

int NVPW_CounterDataBuilder_Create(struct builder *p) {
    CHECK(p, builder, chip)
    p->builder = calloc(1, sizeof(struct config));
    return SUCCESS;
}

int NVPW_CounterDataBuilder_Destroy(struct one *p) {
    CHECK(p, one, handle)
    free(p->handle);
    return SUCCESS;
}

int NVPW_CounterDataBuilder_AddRawCounters(struct add *p) {
    CHECK(p, add, requests)
    ((struct config *)p->config)->counters = p->count;
    return SUCCESS;
}

int NVPW_CounterDataBuilder_GetCounterDataPrefix(struct copy *p) {
    CHECK(p, copy, copied)
    uint64_t prefix[2] = {MAGIC, ((struct config *)p->handle)->counters};
    return copied(p, prefix, sizeof prefix);
}
