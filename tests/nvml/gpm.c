/* GPU performance monitoring: a sample remembers the integral of each metric, a pair of samples gives the averages. */
#include "stand_in.h"

#include <stdlib.h>

typedef struct device *handle;

struct sample {
    handle device; /* NULL until it was filled */
    double taken_s;
    double area[GPM_COUNT];
};

struct metric {
    unsigned id;
    int status;
    double value;
    const char *short_name, *long_name, *unit;
};

struct request {
    unsigned version, count;
    struct sample *first, *second;
    struct metric metrics[];
};

struct support {
    unsigned version, supported;
};

int nvmlGpmQueryDeviceSupport(handle device, struct support *out) {
    ENTER(device)
    if (out->version != 1)
        return leave(VERSION_MISMATCH);
    if (read_uint(device, KEY_gpm_supported, 1, &out->supported))
        out->supported = 0;
    return leave(OK);
}

int nvmlGpmSampleAlloc(struct sample **out) {
    ENTER(NO_DEVICE)
    *out = calloc(1, sizeof **out);
    open_samples++;
    return leave(OK);
}

int nvmlGpmSampleFree(struct sample *sample) {
    ENTER(NO_DEVICE)
    if (!sample)
        return leave(INVALID_ARGUMENT);
    free(sample);
    open_samples--;
    return leave(OK);
}

/* PCIe and NVLink traffic (ids 20, 21, 60, 61; MiB/s) is what the counters say, unless the scenario says otherwise. */
static int source_of(const struct device *device, unsigned id) {
    static const struct {
        unsigned id;
        int key;
    } traffic[] = {{20, KEY_pcie_tx_mib}, {21, KEY_pcie_rx_mib}, {60, KEY_nvlink_rx_mib}, {61, KEY_nvlink_tx_mib}};
    if (id == 0 || id >= GPM_COUNT)
        return -1;
    for (unsigned i = 0; i < sizeof traffic / sizeof *traffic; i++)
        if (traffic[i].id == id && device->values[GPM_KEY(id)].status == NOT_SUPPORTED)
            return traffic[i].key;
    return GPM_KEY(id);
}

static int take(handle device, struct sample *sample) {
    unsigned supported = 0;
    if (!sample)
        return INVALID_ARGUMENT;
    if (read_uint(device, KEY_gpm_supported, 1, &supported) || !supported)
        return NOT_SUPPORTED;
    sample->device = device;
    sample->taken_s = monotonic_s();
    for (unsigned id = 1; id < GPM_COUNT; id++)
        sample->area[id] = area_at(device, source_of(device, id), sample->taken_s);
    return OK;
}

int nvmlGpmSampleGet(handle device, struct sample *sample) {
    ENTER(device)
    return leave(take(device, sample));
}

int nvmlGpmMigSampleGet(handle device, unsigned gi, struct sample *sample) {
    ENTER(device)
    for (int i = 0; i < MIG_PER_GPU; i++)
        if (mig_at(device->gpu, i)->present && mig_at(device->gpu, i)->gi == gi)
            return leave(take(mig_at(device->gpu, i), sample));
    return leave(NOT_FOUND);
}

static void average(handle device, const struct request *request, struct metric *metric) {
    double span = request->second->taken_s - request->first->taken_s;
    int key = source_of(device, metric->id);
    metric->status = key < 0 ? NOT_SUPPORTED : device->values[key].status;
    metric->value = 0;
    metric->short_name = metric->long_name = metric->unit = "";
    if (metric->status)
        return;
    if (device->values[key].number != device->values[key].number || span < GPM_SHORTEST_S)
        metric->value = (double)NAN;
    else
        metric->value = (request->second->area[metric->id] - request->first->area[metric->id]) / span;
    if (device->pairs <= device->values[KEY_gpm_nan_pairs].number)
        metric->value = (double)NAN;
    if (device->pairs <= device->values[KEY_gpm_zero_pairs].number)
        metric->value = 0;
}

int nvmlGpmMetricsGet(struct request *request) {
    handle device = request && request->second && request->second->device ? request->second->device : NULL;
    ENTER(device ? device : NO_DEVICE)
    if (!device || !request->first || request->first->device != device)
        return leave(INVALID_ARGUMENT);
    if (request->version != 1)
        return leave(VERSION_MISMATCH);
    device->pairs++;
    for (unsigned i = 0; i < request->count; i++)
        average(device, request, &request->metrics[i]);
    return leave(OK);
}
