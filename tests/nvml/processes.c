/* Process lists (all three forms of the structure) and the utilisation of each process. */
#include "stand_in.h"

#include <stddef.h>
#include <time.h>

typedef struct device *handle;

struct process_v1 {
    unsigned pid;
    unsigned long long bytes;
};

struct process_v2 {
    unsigned pid;
    unsigned long long bytes;
    unsigned gi, ci;
};

typedef void (*visitor)(const struct process *process, const struct device *owner, unsigned index, void *out);

/* Visits the processes of one type (0 = any) of a device; a MIG parent shows those of its instances too. */
static unsigned visit(handle device, char type, unsigned room, visitor write, void *out) {
    unsigned found = 0;
    for (int instance = -1; instance < MIG_PER_GPU; instance++) {
        const struct device *owner = instance < 0 ? device : mig_at(device->gpu, instance);
        if (instance >= 0 && (device->instance >= 0 || !owner->present))
            continue;
        for (int i = 0; i < owner->process_count; i++) {
            if (type && owner->processes[i].type != type)
                continue;
            if (found < room && out)
                write(&owner->processes[i], owner, found, out);
            found++;
        }
    }
    return found;
}

static void write_v1(const struct process *process, const struct device *owner, unsigned index, void *out) {
    (void)owner;
    ((struct process_v1 *)out)[index] = (struct process_v1){process->pid, process->bytes};
}

static void write_v2(const struct process *process, const struct device *owner, unsigned index, void *out) {
    ((struct process_v2 *)out)[index] = (struct process_v2){process->pid, process->bytes, owner->gi, owner->ci};
}

static int list(handle device, char type, unsigned *count, visitor write, void *out) {
    unsigned room = *count;
    *count = visit(device, type, room, write, out);
    return *count > room || (*count && !out) ? INSUFFICIENT_SIZE : OK;
}

#define LIST(function, type, form)                                                                                     \
    int function(handle device, unsigned *count, void *out) {                                                          \
        ENTER(device)                                                                                                  \
        return leave(list(device, type, count, write_##form, out));                                                    \
    }
LIST(nvmlDeviceGetComputeRunningProcesses, 'C', v1)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, 'C', v2)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, 'C', v2)
LIST(nvmlDeviceGetGraphicsRunningProcesses, 'G', v1)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, 'G', v2)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, 'G', v2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, 'M', v1)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, 'M', v2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, 'M', v2)

struct sample {
    unsigned pid;
    unsigned long long timestamp_us;
    unsigned sm, mem, enc, dec;
};

struct sample_info {
    unsigned long long timestamp_us;
    unsigned pid, sm, mem, enc, dec, jpg, ofa;
};

struct samples_info {
    unsigned version, count;
    unsigned long long last_seen_us;
    struct sample_info *samples;
};

static unsigned long long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000ull + (unsigned long long)now.tv_nsec / 1000;
}

static void write_sample(const struct process *process, const struct device *owner, unsigned index, void *out) {
    (void)owner;
    ((struct sample *)out)[index] =
        (struct sample){process->pid, now_us(), process->sm, process->mem, process->enc, process->dec};
}

static void write_info(const struct process *process, const struct device *owner, unsigned index, void *out) {
    (void)owner;
    ((struct sample_info *)out)[index] =
        (struct sample_info){now_us(), process->pid, process->sm, process->mem, process->enc, process->dec, 0, 0};
}

/* Samples are always fresh: only a time stamp of the future finds none. With MIG the driver supports neither call. */
static int list_samples(handle device, unsigned *count, unsigned long long last_seen_us, visitor write, void *out) {
    if (device->instance >= 0 || (!device->values[KEY_mig].status && device->values[KEY_mig].number > 0))
        return NOT_SUPPORTED;
    int status = list(device, 0, count, write, out);
    return *count == 0 || last_seen_us > now_us() ? NOT_FOUND : status;
}

int nvmlDeviceGetProcessUtilization(handle device, struct sample *out, unsigned *count,
                                    unsigned long long last_seen_us) {
    ENTER(device)
    return leave(list_samples(device, count, last_seen_us, write_sample, out));
}

int nvmlDeviceGetProcessesUtilizationInfo(handle device, struct samples_info *info) {
    ENTER(device)
    if (info->version != (sizeof *info | (1 << 24)))
        return leave(VERSION_MISMATCH);
    return leave(list_samples(device, &info->count, info->last_seen_us, write_info, info->samples));
}
