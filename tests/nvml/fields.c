/* Field values (one return code each) and NVLink. */
#include "stand_in.h"

#include <string.h>
#include <time.h>

typedef struct device *handle;

enum { TYPE_UINT = 1, TYPE_ULL = 3 };
enum { DATA_TX = 138, DATA_RX = 139, RAW_TX = 140, RAW_RX = 141, PCIE_TX = 197, PCIE_RX = 198, ENERGY = 83 };
enum { POWER_INSTANT = 186, SCOPE_MODULE = 1 };
enum { LINK_SPEED = 164, LINK_STATE = 165, ALL_LINKS = 0xffffffff };

/* A field that is one number of the device, in the unit that NVML gives it. */
static const struct {
    unsigned id;
    int key;
    double scale;
    unsigned type;
} fields[] = {
    {1, KEY_ecc, 1, TYPE_UINT},
    {2, KEY_ecc, 1, TYPE_UINT},
    {3, KEY_ecc_corrected_volatile, 1, TYPE_ULL},
    {4, KEY_ecc_uncorrected_volatile, 1, TYPE_ULL},
    {5, KEY_ecc_corrected, 1, TYPE_ULL},
    {6, KEY_ecc_uncorrected, 1, TYPE_ULL},
    {29, KEY_retired_sbe, 1, TYPE_UINT},
    {30, KEY_retired_dbe, 1, TYPE_UINT},
    {31, KEY_retired_pending, 1, TYPE_UINT},
    {82, KEY_mem_temp_c, 1, TYPE_UINT},
    {90, KEY_nvlink_mbps, 1, TYPE_UINT},
    {91, KEY_nvlink_links, 1, TYPE_UINT},
    {94, KEY_pcie_replays, 1, TYPE_UINT},
    {142, KEY_remap_corrected, 1, TYPE_UINT},
    {143, KEY_remap_uncorrected, 1, TYPE_UINT},
    {144, KEY_remap_pending, 1, TYPE_UINT},
    {145, KEY_remap_failed, 1, TYPE_UINT},
    {185, KEY_power_w, 1000, TYPE_UINT},
    {186, KEY_power_w, 1000, TYPE_UINT},
    {187, KEY_power_min_w, 1000, TYPE_UINT},
    {188, KEY_power_max_w, 1000, TYPE_UINT},
    {189, KEY_power_default_w, 1000, TYPE_UINT},
    {190, KEY_power_limit_w, 1000, TYPE_UINT},
    {230, KEY_recovery_action, 1, TYPE_UINT},
};

union any {
    double real;
    unsigned narrow;
    unsigned long long wide;
};

struct field {
    unsigned id, scope;
    long long timestamp_us, latency_us;
    unsigned type;
    int status;
    union any value;
};

static unsigned count_of(handle device, int key) {
    unsigned count = 0;
    return read_uint(device, key, 1, &count) ? 0 : count;
}

/* A counter: the integral over time of a rate in MiB/s, in units of `unit` bytes. */
static int read_traffic(handle device, int key, double unit, struct field *field) {
    field->type = TYPE_ULL;
    if (device->values[key].status)
        return device->values[key].status;
    field->value.wide = (unsigned long long)(area_at(device, key, monotonic_s()) * 1048576.0 / unit);
    return OK;
}

/* NVLink counters of one link, or of all of them, in KiB. Traffic spreads evenly over the active links. */
static int read_link_traffic(handle device, int key, struct field *field) {
    unsigned active = count_of(device, KEY_nvlink_active);
    int status = read_traffic(device, key, 1024, field);
    if (status || field->scope == (unsigned)ALL_LINKS)
        return status;
    if (field->scope >= active)
        return INVALID_ARGUMENT;
    field->value.wide /= active;
    return OK;
}

static int read_link(handle device, struct field *field) {
    field->type = TYPE_UINT;
    if (field->scope >= count_of(device, KEY_nvlink_links))
        return device->values[KEY_nvlink_links].status ? NOT_SUPPORTED : INVALID_ARGUMENT;
    if (field->id == LINK_SPEED)
        return read_uint(device, KEY_nvlink_mbps, 1, &field->value.narrow);
    field->value.narrow =
        field->scope < count_of(device, KEY_nvlink_active) && !(count_of(device, KEY_nvlink_down_mask) >> field->scope & 1);
    return OK;
}

static int read_field(handle device, struct field *field) {
    switch (field->id) {
    case DATA_TX:
    case RAW_TX:
        return read_link_traffic(device, KEY_nvlink_tx_mib, field);
    case DATA_RX:
    case RAW_RX:
        return read_link_traffic(device, KEY_nvlink_rx_mib, field);
    case PCIE_TX:
        return read_traffic(device, KEY_pcie_tx_mib, 1, field);
    case PCIE_RX:
        return read_traffic(device, KEY_pcie_rx_mib, 1, field);
    case LINK_SPEED:
    case LINK_STATE:
        return read_link(device, field);
    case POWER_INSTANT:
        if (field->scope == SCOPE_MODULE)
            return read_uint(device, KEY_module_power_w, 1000, &field->value.narrow);
        break;
    case ENERGY:
        field->type = TYPE_ULL;
        if (device->values[KEY_energy_j].status)
            return device->values[KEY_energy_j].status;
        field->value.wide = (unsigned long long)(1000 * (device->values[KEY_energy_j].number +
                                                         area_at(device, KEY_power_w, monotonic_s())));
        return OK;
    }
    for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].id == field->id) {
            field->type = fields[i].type;
            return field->type == TYPE_UINT
                       ? read_uint(device, fields[i].key, fields[i].scale, &field->value.narrow)
                       : read_ull(device, fields[i].key, fields[i].scale, &field->value.wide);
        }
    return field->id >= 84 && field->id <= 89 && field->id - 84 < count_of(device, KEY_nvlink_active)
               ? read_uint(device, KEY_nvlink_mbps, 1, &field->value.narrow)
               : NOT_SUPPORTED;
}

int nvmlDeviceGetFieldValues(handle device, int count, struct field *values) {
    ENTER(device)
    struct timespec now;
    if (count <= 0 || !values)
        return leave(INVALID_ARGUMENT);
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < count; i++) {
        values[i].timestamp_us = now.tv_sec * 1000000ll + now.tv_nsec / 1000;
        values[i].latency_us = 0;
        values[i].type = TYPE_UINT;
        memset(&values[i].value, 0, sizeof values[i].value);
        values[i].status = read_field(device, &values[i]);
    }
    return leave(OK);
}

int nvmlDeviceGetNvLinkState(handle device, unsigned link, unsigned *active) {
    ENTER(device)
    if (device->values[KEY_nvlink_links].status)
        return leave(NOT_SUPPORTED);
    *active = link < count_of(device, KEY_nvlink_active);
    return leave(link < count_of(device, KEY_nvlink_links) ? OK : INVALID_ARGUMENT);
}

/* Capability 0 is NVML_NVLINK_CAP_P2P_SUPPORTED; the stand-in's links can all of it. */
int nvmlDeviceGetNvLinkCapability(handle device, unsigned link, unsigned capability, unsigned *able) {
    ENTER(device)
    *able = capability < 6;
    return leave(link < count_of(device, KEY_nvlink_links) ? OK : NOT_SUPPORTED);
}

int nvmlDeviceGetNvLinkVersion(handle device, unsigned link, unsigned *version) {
    ENTER(device)
    int status = read_uint(device, KEY_nvlink_version, 1, version);
    return leave(!status && link >= count_of(device, KEY_nvlink_links) ? INVALID_ARGUMENT : status);
}

/* 2 is NVML_NVLINK_DEVICE_TYPE_SWITCH: every link of the stand-in ends at a switch. */
int nvmlDeviceGetNvLinkRemoteDeviceType(handle device, unsigned link, unsigned *type) {
    ENTER(device)
    *type = 2;
    return leave(link < count_of(device, KEY_nvlink_active) ? OK : NOT_SUPPORTED);
}

int nvmlDeviceGetNvLinkErrorCounter(handle device, unsigned link, unsigned counter, unsigned long long *value) {
    ENTER(device)
    *value = 0;
    return leave(counter < 5 && link < count_of(device, KEY_nvlink_active) ? OK : NOT_SUPPORTED);
}
