/* Handles and what a device says of itself: identity, memory, load, clocks, power, temperatures, PCIe, errors, MIG. */
#include "stand_in.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct device *handle;

/* A plain query of one number, rounded to the unit that NVML uses. */
#define READ_UINT(function, key, scale)                                                                                \
    int function(handle device, unsigned *out) {                                                                       \
        ENTER(device)                                                                                                  \
        return leave(read_uint(device, KEY_##key, scale, out));                                                        \
    }
#define READ_TWO_UINTS(function, first_key, second_key, scale)                                                         \
    int function(handle device, unsigned *first, unsigned *second) {                                                   \
        ENTER(device)                                                                                                  \
        int status = read_uint(device, KEY_##first_key, scale, first);                                                 \
        return leave(status ? status : read_uint(device, KEY_##second_key, scale, second));                            \
    }
#define READ_TEXT(function, member)                                                                                    \
    int function(handle device, char *out, unsigned length) {                                                          \
        ENTER(device)                                                                                                  \
        return leave(copy_text(out, length, device->member));                                                          \
    }

READ_TEXT(nvmlDeviceGetName, name)
READ_TEXT(nvmlDeviceGetUUID, uuid)
READ_TEXT(nvmlDeviceGetSerial, serial)
READ_UINT(nvmlDeviceGetArchitecture, architecture, 1)
READ_UINT(nvmlDeviceGetBrand, brand, 1)
READ_UINT(nvmlDeviceGetNumGpuCores, cores, 1)
READ_UINT(nvmlDeviceGetPowerUsage, power_w, 1000)
READ_UINT(nvmlDeviceGetPowerManagementLimit, power_limit_w, 1000)
READ_UINT(nvmlDeviceGetEnforcedPowerLimit, power_limit_w, 1000)
READ_UINT(nvmlDeviceGetPowerManagementDefaultLimit, power_default_w, 1000)
READ_UINT(nvmlDeviceGetPerformanceState, pstate, 1)
READ_UINT(nvmlDeviceGetPowerState, pstate, 1)
READ_UINT(nvmlDeviceGetFanSpeed, fan, 1)
READ_UINT(nvmlDeviceGetNumFans, fans, 1)
READ_UINT(nvmlDeviceGetCurrPcieLinkGeneration, pcie_gen, 1)
READ_UINT(nvmlDeviceGetMaxPcieLinkGeneration, pcie_gen_max, 1)
READ_UINT(nvmlDeviceGetGpuMaxPcieLinkGeneration, pcie_gen_gpu_max, 1)
READ_UINT(nvmlDeviceGetCurrPcieLinkWidth, pcie_width, 1)
READ_UINT(nvmlDeviceGetMaxPcieLinkWidth, pcie_width_max, 1)
READ_UINT(nvmlDeviceGetPcieReplayCounter, pcie_replays, 1)
READ_UINT(nvmlDeviceGetComputeMode, compute_mode, 1)
READ_UINT(nvmlDeviceGetPersistenceMode, persistence, 1)
READ_UINT(nvmlDeviceGetDisplayMode, display_mode, 1)
READ_UINT(nvmlDeviceGetDisplayActive, display_active, 1)
READ_UINT(nvmlDeviceGetRetiredPagesPendingStatus, retired_pending, 1)
READ_TWO_UINTS(nvmlDeviceGetCudaComputeCapability, compute_major, compute_minor, 1)
READ_TWO_UINTS(nvmlDeviceGetPowerManagementLimitConstraints, power_min_w, power_max_w, 1000)
READ_TWO_UINTS(nvmlDeviceGetEccMode, ecc, ecc, 1)
READ_TWO_UINTS(nvmlDeviceGetMigMode, mig, mig, 1)

int nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER(NO_DEVICE)
    *count = (unsigned)world.gpus;
    return leave(OK);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *out) {
    /* Rules and latency of the GPU hold for the search of its handle too: a lost GPU fails here. */
    ENTER(index < MAX_GPUS && gpu_at((int)index)->present ? gpu_at((int)index) : NO_DEVICE)
    if (index >= (unsigned)world.gpus)
        return leave(INVALID_ARGUMENT);
    *out = gpu_at((int)index);
    return leave(OK);
}

static handle find_uuid(const char *uuid) {
    for (int i = 0; i < MAX_DEVICES; i++)
        if (world.devices[i].present && !strcmp(world.devices[i].uuid, uuid))
            return &world.devices[i];
    return NULL;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, handle *out) {
    handle found = find_uuid(uuid);
    ENTER(found ? found : NO_DEVICE)
    *out = found;
    return leave(found ? OK : NOT_FOUND);
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, handle *out) {
    handle found = NULL;
    for (int i = 0; i < MAX_GPUS; i++)
        if (world.devices[i].present && !strcasecmp(world.devices[i].pci, bus_id))
            found = &world.devices[i];
    ENTER(found ? found : NO_DEVICE)
    *out = found;
    return leave(found ? OK : NOT_FOUND);
}

/* For a MIG device the index is that of nvmlDeviceGetMigDeviceHandleByIndex. */
int nvmlDeviceGetIndex(handle device, unsigned *out) {
    ENTER(device)
    *out = (unsigned)(device->instance < 0 ? device->gpu : device->instance);
    return leave(OK);
}

int nvmlDeviceGetMinorNumber(handle device, unsigned *out) {
    ENTER(device)
    *out = (unsigned)device->gpu;
    return leave(device->instance < 0 ? OK : NOT_SUPPORTED);
}

struct pci_info {
    char legacy_bus_id[16];
    unsigned domain, bus, device, pci_device_id, subsystem_id;
    char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(handle device, struct pci_info *info) {
    ENTER(device)
    const char *address = gpu_at(device->gpu)->pci;
    memset(info, 0, sizeof *info);
    if (sscanf(address, "%x:%x:%x", &info->domain, &info->bus, &info->device) != 3)
        return leave(NOT_SUPPORTED);
    snprintf(info->bus_id, sizeof info->bus_id, "%s", address);
    snprintf(info->legacy_bus_id, sizeof info->legacy_bus_id, "%04X:%02X:%02X.0", info->domain & 0xffffu,
             info->bus & 0xffu, info->device & 0xffu);
    return leave(OK);
}

struct attributes {
    unsigned sm_count, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
    unsigned long long memory_mb;
};

int nvmlDeviceGetAttributes_v2(handle device, struct attributes *out) {
    ENTER(device)
    memset(out, 0, sizeof *out);
    int status = read_uint(device, KEY_attributes_sm, 1, &out->sm_count);
    if (status)
        return leave(status);
    read_uint(device, KEY_gpu_slices, 1, &out->gpu_slices);
    read_uint(device, KEY_compute_slices, 1, &out->compute_slices);
    read_ull(device, KEY_mem_total_bytes, 1.0 / (1024 * 1024), &out->memory_mb);
    return leave(OK);
}

/* The first form of the call counts the driver's reserve as used; the second shows it apart. */
struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

static int read_memory(handle device, struct memory_v2 *out) {
    int status = read_ull(device, KEY_mem_total_bytes, 1, &out->total);
    if (!status)
        status = read_ull(device, KEY_mem_used_bytes, 1, &out->used);
    if (status)
        return status;
    if (read_ull(device, KEY_mem_reserved_bytes, 1, &out->reserved))
        out->reserved = 0;
    out->free = out->total - out->used - out->reserved;
    return OK;
}

int nvmlDeviceGetMemoryInfo(handle device, struct memory *out) {
    ENTER(device)
    struct memory_v2 all;
    int status = read_memory(device, &all);
    if (!status)
        *out = (struct memory){all.total, all.free, all.used + all.reserved};
    return leave(status);
}

int nvmlDeviceGetMemoryInfo_v2(handle device, struct memory_v2 *out) {
    ENTER(device)
    if (out->version != (sizeof *out | (2 << 24)))
        return leave(VERSION_MISMATCH);
    return leave(read_memory(device, out));
}

int nvmlDeviceGetBAR1MemoryInfo(handle device, struct memory *out) {
    ENTER(device)
    int status = read_ull(device, KEY_bar1_total_bytes, 1, &out->total);
    if (!status)
        status = read_ull(device, KEY_bar1_used_bytes, 1, &out->used);
    if (!status)
        out->free = out->total - out->used;
    return leave(status);
}

int nvmlDeviceGetUtilizationRates(handle device, unsigned out[2]) {
    ENTER(device)
    int status = read_uint(device, KEY_util, 1, &out[0]);
    if (!status && read_uint(device, KEY_mem_util, 1, &out[1]))
        out[1] = 0;
    return leave(status);
}

#define READ_ENGINE(function, key)                                                                                     \
    int function(handle device, unsigned *percent, unsigned *period_us) {                                              \
        ENTER(device)                                                                                                  \
        *period_us = 167000;                                                                                           \
        return leave(read_uint(device, KEY_##key, 1, percent));                                                        \
    }
READ_ENGINE(nvmlDeviceGetEncoderUtilization, encoder)
READ_ENGINE(nvmlDeviceGetDecoderUtilization, decoder)
READ_ENGINE(nvmlDeviceGetJpgUtilization, jpeg)
READ_ENGINE(nvmlDeviceGetOfaUtilization, ofa)

int nvmlDeviceGetTemperature(handle device, unsigned sensor, unsigned *out) {
    ENTER(device)
    return leave(sensor ? INVALID_ARGUMENT : read_uint(device, KEY_temp_c, 1, out));
}

struct temperature {
    unsigned version, sensor;
    int celsius;
};

int nvmlDeviceGetTemperatureV(handle device, struct temperature *out) {
    ENTER(device)
    unsigned celsius;
    if (out->version != (sizeof *out | (1 << 24)))
        return leave(VERSION_MISMATCH);
    int status = out->sensor ? INVALID_ARGUMENT : read_uint(device, KEY_temp_c, 1, &celsius);
    if (!status)
        out->celsius = (int)celsius;
    return leave(status);
}

int nvmlDeviceGetTemperatureThreshold(handle device, unsigned which, unsigned *out) {
    static const int keys[] = {KEY_temp_shutdown_c, KEY_temp_slowdown_c, KEY_temp_mem_max_c, KEY_temp_gpu_max_c};
    ENTER(device)
    return leave(which < 4 ? read_uint(device, keys[which], 1, out) : INVALID_ARGUMENT);
}

/* The energy at the start plus the integral of the power since. */
int nvmlDeviceGetTotalEnergyConsumption(handle device, unsigned long long *millijoules) {
    ENTER(device)
    int status = device->values[KEY_energy_j].status;
    if (!status)
        *millijoules = (unsigned long long)(1000 * (device->values[KEY_energy_j].number +
                                                    area_at(device, KEY_power_w, monotonic_s())));
    return leave(status);
}

static int read_clock(handle device, int first_key, unsigned domain, unsigned *out) {
    return domain < 4 ? read_uint(device, first_key + (int)domain, 1, out) : INVALID_ARGUMENT;
}

#define READ_CLOCK(function, first_key)                                                                                \
    int function(handle device, unsigned domain, unsigned *out) {                                                      \
        ENTER(device)                                                                                                  \
        return leave(read_clock(device, first_key, domain, out));                                                      \
    }
READ_CLOCK(nvmlDeviceGetClockInfo, KEY_graphics_clock_mhz)
READ_CLOCK(nvmlDeviceGetMaxClockInfo, KEY_graphics_clock_max_mhz)
READ_CLOCK(nvmlDeviceGetApplicationsClock, KEY_graphics_clock_max_mhz)
READ_CLOCK(nvmlDeviceGetDefaultApplicationsClock, KEY_graphics_clock_max_mhz)

int nvmlDeviceGetFanSpeed_v2(handle device, unsigned fan, unsigned *out) {
    ENTER(device)
    unsigned fans = 0;
    int status = read_uint(device, KEY_fans, 1, &fans);
    if (!status && fan >= fans)
        status = INVALID_ARGUMENT;
    return leave(status ? status : read_uint(device, KEY_fan, 1, out));
}

int nvmlDeviceGetCurrentClocksEventReasons(handle device, unsigned long long *out) {
    ENTER(device)
    return leave(read_ull(device, KEY_throttle, 1, out));
}

int nvmlDeviceGetCurrentClocksThrottleReasons(handle device, unsigned long long *out) {
    ENTER(device)
    return leave(read_ull(device, KEY_throttle, 1, out));
}

int nvmlDeviceGetSupportedClocksEventReasons(handle device, unsigned long long *out) {
    ENTER(device)
    *out = 0x1ff;
    return leave(device->values[KEY_throttle].status);
}

/* In KB/s. The real call measures for 20 ms and blocks for as long. */
int nvmlDeviceGetPcieThroughput(handle device, unsigned counter, unsigned *out) {
    ENTER_AFTER(device, 20000)
    return leave(counter > 1 ? INVALID_ARGUMENT
                             : read_uint(device, counter ? KEY_pcie_rx_mib : KEY_pcie_tx_mib, 1024, out));
}

int nvmlDeviceGetTotalEccErrors(handle device, unsigned type, unsigned counter, unsigned long long *out) {
    static const int keys[2][2] = {{KEY_ecc_corrected_volatile, KEY_ecc_corrected},
                                   {KEY_ecc_uncorrected_volatile, KEY_ecc_uncorrected}};
    ENTER(device)
    return leave(type > 1 || counter > 1 ? INVALID_ARGUMENT : read_ull(device, keys[type][counter], 1, out));
}

int nvmlDeviceGetRemappedRows(handle device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed) {
    ENTER(device)
    int status = read_uint(device, KEY_remap_corrected, 1, corrected);
    if (!status)
        status = read_uint(device, KEY_remap_uncorrected, 1, uncorrected);
    if (!status)
        status = read_uint(device, KEY_remap_pending, 1, pending);
    return leave(status ? status : read_uint(device, KEY_remap_failed, 1, failed));
}

int nvmlDeviceGetRetiredPages(handle device, unsigned cause, unsigned *count, unsigned long long *addresses) {
    ENTER(device)
    unsigned found, room = *count;
    int status = cause > 1 ? INVALID_ARGUMENT : read_uint(device, KEY_retired_sbe + (int)cause, 1, &found);
    if (status)
        return leave(status);
    *count = found;
    if (room < found || !addresses)
        return leave(found ? INSUFFICIENT_SIZE : OK);
    for (unsigned i = 0; i < found; i++)
        addresses[i] = 0x1000ull * (i + 1);
    return leave(OK);
}

/* The driver model is a matter of Windows. */
int nvmlDeviceGetDriverModel(handle device, unsigned *current, unsigned *pending) {
    ENTER(device)
    *current = *pending = 0;
    return leave(NOT_SUPPORTED);
}

int nvmlDeviceGetDriverModel_v2(handle device, unsigned *current, unsigned *pending) {
    ENTER(device)
    *current = *pending = 0;
    return leave(NOT_SUPPORTED);
}

int nvmlDeviceGetMaxMigDeviceCount(handle device, unsigned *out) {
    ENTER(device)
    *out = device->values[KEY_mig].status ? 0 : 7;
    return leave(OK);
}

int nvmlDeviceGetMigDeviceHandleByIndex(handle device, unsigned index, handle *out) {
    ENTER(device)
    handle found = index < MIG_PER_GPU && device->instance < 0 ? mig_at(device->gpu, (int)index) : NULL;
    if (!found || device->values[KEY_mig].status)
        return leave(found ? NOT_SUPPORTED : INVALID_ARGUMENT);
    *out = found;
    return leave(found->present ? OK : NOT_FOUND);
}

int nvmlDeviceIsMigDeviceHandle(handle device, unsigned *out) {
    ENTER(device)
    *out = device->instance >= 0;
    return leave(OK);
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle device, handle *out) {
    ENTER(device)
    *out = gpu_at(device->gpu);
    return leave(device->instance < 0 ? INVALID_ARGUMENT : OK);
}

int nvmlDeviceGetGpuInstanceId(handle device, unsigned *out) {
    ENTER(device)
    *out = device->gi;
    return leave(device->instance < 0 ? NOT_SUPPORTED : OK);
}

int nvmlDeviceGetComputeInstanceId(handle device, unsigned *out) {
    ENTER(device)
    *out = device->ci;
    return leave(device->instance < 0 ? NOT_SUPPORTED : OK);
}
