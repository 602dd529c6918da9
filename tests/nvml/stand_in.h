/* The stand-in libnvidia-ml.so.1: what its files share.
 *
 * It answers with the structures, symbol names and return codes of the real library, from a scenario file that a test
 * writes and may rewrite while a program runs. The words of that file are explained in stand_in.py, which writes it.
 */
#ifndef STAND_IN_H
#define STAND_IN_H

#include <math.h>
#include <stdint.h>

#define MAX_GPUS 32
#define MIG_PER_GPU 8
#define MAX_DEVICES (MAX_GPUS * (1 + MIG_PER_GPU))
#define MAX_PROCESSES 64
#define MAX_RULES 64
#define MAX_XIDS 16
#define GPM_COUNT 128
#define GPM_SHORTEST_S 0.1 /* pairs of GPM samples closer than this give NaN */

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

/* Every number a device can have: X(name, moves with the wave). One that the scenario leaves out is NOT_SUPPORTED. */
#define DEVICE_NUMBERS(X)                                                                                              \
    X(util, 1) X(mem_util, 1) X(mem_used_bytes, 0) X(mem_total_bytes, 0) X(mem_reserved_bytes, 0)                      \
    X(bar1_used_bytes, 0) X(bar1_total_bytes, 0) X(encoder, 0) X(decoder, 0) X(jpeg, 0) X(ofa, 0)                      \
    X(temp_c, 1) X(mem_temp_c, 0) X(temp_slowdown_c, 0) X(temp_shutdown_c, 0) X(temp_gpu_max_c, 0)                     \
    X(temp_mem_max_c, 0) X(power_w, 1) X(power_limit_w, 0) X(power_default_w, 0) X(power_min_w, 0)                     \
    X(power_max_w, 0) X(energy_j, 0) X(graphics_clock_mhz, 0) X(sm_clock_mhz, 0) X(mem_clock_mhz, 0)                   \
    X(video_clock_mhz, 0) X(graphics_clock_max_mhz, 0) X(sm_clock_max_mhz, 0) X(mem_clock_max_mhz, 0)                  \
    X(video_clock_max_mhz, 0) X(pstate, 0) X(fan, 0) X(fans, 0) X(throttle, 0) X(pcie_gen, 0) X(pcie_gen_max, 0)       \
    X(pcie_gen_gpu_max, 0) X(pcie_width, 0) X(pcie_width_max, 0) X(pcie_replays, 0) X(pcie_tx_mib, 1)                  \
    X(pcie_rx_mib, 1) X(nvlink_links, 0) X(nvlink_active, 0) X(nvlink_mbps, 0) X(nvlink_version, 0)                    \
    X(nvlink_tx_mib, 1) X(nvlink_rx_mib, 1) X(ecc, 0) X(ecc_corrected_volatile, 0) X(ecc_uncorrected_volatile, 0)      \
    X(ecc_corrected, 0) X(ecc_uncorrected, 0) X(retired_sbe, 0) X(retired_dbe, 0) X(retired_pending, 0)                \
    X(remap_corrected, 0) X(remap_uncorrected, 0) X(remap_pending, 0) X(remap_failed, 0) X(mig, 0)                     \
    X(architecture, 0) X(brand, 0) X(compute_major, 0) X(compute_minor, 0) X(cores, 0) X(attributes_sm, 0)             \
    X(gpu_slices, 0) X(compute_slices, 0) X(compute_mode, 0) X(persistence, 0) X(display_mode, 0)                      \
    X(virtualization, 0) X(display_active, 0) X(gpm_supported, 0) X(gpm_zero_pairs, 0) X(gpm_nan_pairs, 0)             \
    X(latency_us, 0) X(util_renew_s, 0) X(recovery_action, 0) X(nvlink_down_mask, 0) X(module_power_w, 1)

#define AS_ENUM(name, moves) KEY_##name,
enum key { DEVICE_NUMBERS(AS_ENUM) KEY_COUNT };
#define GPM_KEY(id) (KEY_COUNT + (id))
#define VALUE_COUNT (KEY_COUNT + GPM_COUNT)

struct value {
    double number;
    int status; /* an NVML return code: the call or the field that asks for this value fails with it */
};

struct process {
    unsigned pid;
    unsigned long long bytes; /* all ones = NVML_VALUE_NOT_AVAILABLE */
    char type;                /* C compute, G graphics, M MPS */
    unsigned sm, mem, enc, dec;
};

struct device {
    int present;
    int gpu;               /* NVML index; of the parent for a MIG device */
    int instance;          /* -1, or the index of the MIG device within its parent */
    unsigned gi, ci;       /* GPU and compute instance of a MIG device */
    char name[96], uuid[80], pci[32], serial[30];
    struct value values[VALUE_COUNT];
    double area[VALUE_COUNT]; /* integral over time of each value until `since`, for averages and counters */
    double since;             /* monotonic seconds */
    int xid_serial[MAX_XIDS], xid_code[MAX_XIDS], xids;
    unsigned pairs; /* GPM pairs asked for so far */
    int process_count;
    struct process processes[MAX_PROCESSES];
};

struct rule {
    char text[512], function[64];
    int gpu; /* -1 = any, and calls without a device */
    int code;
    double hang_s;
    long after, times, seen;
};

struct world {
    int gpus;
    int loads;         /* how often the driver was loaded; 0 = it is not. Who began under another load is refused */
    int count_at_init; /* GPUs that come later are only counted after the next init */
    char driver[80], nvml[80], branch[80];
    int cuda;
    double latency_us;
    int serial; /* the driver makes one call wait for the other */
    double wave_s, wave_depth;
    int rule_count;
    struct rule rules[MAX_RULES];
    struct device devices[MAX_DEVICES];
};

/* Only the nvml* names are visible from outside, as in the real library. */
#pragma GCC visibility push(hidden)
extern struct world world;

/* scenario.c */
double monotonic_s(void); /* as the program that loaded the library sets it, else the machine's */
void reload_scenario(int at_once);
struct device *gpu_at(int index);
struct device *mig_at(int gpu, int instance);
int is_device(const struct device *device);
double value_at(const struct device *device, int key, double now);
double area_at(const struct device *device, int key, double now);

/* session.c */
int enter(const char *function, int *slot, struct device *device, double extra_us);
int leave(int status);
extern int open_samples, open_event_sets;
int counted_gpus(void);

/* Every entry point starts with ENTER and ends with leave(): between them the scenario does not change. */
#define ENTER_AFTER(target, delay_us)                                                                                  \
    static int slot_ = -1;                                                                                             \
    int status_ = enter(__func__, &slot_, (struct device *)(target), (delay_us));                                      \
    if (status_)                                                                                                       \
        return status_;
#define ENTER(target) ENTER_AFTER(target, 0)
#define NO_DEVICE ((struct device *)-1)

int read_double(const struct device *device, int key, double scale, double *out);
int read_uint(const struct device *device, int key, double scale, unsigned *out);
int read_ull(const struct device *device, int key, double scale, unsigned long long *out);
int copy_text(char *out, unsigned length, const char *text);
#pragma GCC visibility pop

/* A plain query of one number, rounded to the unit that NVML uses. */
#define READ_UINT(function, key, scale)                                                                                \
    int function(struct device *device, unsigned *out) {                                                               \
        ENTER(device)                                                                                                  \
        return leave(read_uint(device, KEY_##key, scale, out));                                                        \
    }
#define READ_TWO_UINTS(function, first_key, second_key, scale)                                                         \
    int function(struct device *device, unsigned *first, unsigned *second) {                                           \
        ENTER(device)                                                                                                  \
        int status = read_uint(device, KEY_##first_key, scale, first);                                                 \
        return leave(status ? status : read_uint(device, KEY_##second_key, scale, second));                            \
    }
#define READ_TEXT(function, member)                                                                                    \
    int function(struct device *device, char *out, unsigned length) {                                                  \
        ENTER(device)                                                                                                  \
        return leave(copy_text(out, length, device->member));                                                          \
    }

#endif
