/* How a device does: load, clocks, power, temperatures, PCIe, memory errors. */
#include "stand_in.h"

typedef struct device *handle;

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
READ_UINT(nvmlDeviceGetRetiredPagesPendingStatus, retired_pending, 1)
READ_TWO_UINTS(nvmlDeviceGetPowerManagementLimitConstraints, power_min_w, power_max_w, 1000)
READ_TWO_UINTS(nvmlDeviceGetEccMode, ecc, ecc, 1)

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
