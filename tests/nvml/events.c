/* Event sets: Xid errors that the scenario names are delivered once to each set that asked for them. */
#include "stand_in.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XID_EVENT 0x8ull

typedef struct device *handle;

struct event_set {
    char registered[MAX_GPUS];
    int delivered[MAX_GPUS]; /* the serial number of the last Xid that was handed out */
};

struct event {
    handle device;
    unsigned long long type, data;
    unsigned gi, ci;
};

int nvmlEventSetCreate(struct event_set **set) {
    ENTER(NO_DEVICE)
    *set = calloc(1, sizeof **set);
    open_event_sets++;
    return leave(OK);
}

int nvmlEventSetFree(struct event_set *set) {
    ENTER(NO_DEVICE)
    free(set);
    open_event_sets--;
    return leave(OK);
}

int nvmlDeviceGetSupportedEventTypes(handle device, unsigned long long *types) {
    ENTER(device)
    *types = XID_EVENT;
    return leave(OK);
}

int nvmlDeviceRegisterEvents(handle device, unsigned long long types, struct event_set *set) {
    ENTER(device)
    if (types & ~XID_EVENT)
        return leave(NOT_SUPPORTED);
    set->registered[device->gpu] = 1;
    return leave(OK);
}

static int next_event(struct event_set *set, struct event *out) {
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        handle device = gpu_at(gpu);
        for (int i = 0; set->registered[gpu] && device->present && i < device->xids; i++)
            if (device->xid_serial[i] > set->delivered[gpu]) {
                set->delivered[gpu] = device->xid_serial[i];
                *out = (struct event){device, XID_EVENT, (unsigned long long)device->xid_code[i], ~0u, ~0u};
                return 1;
            }
    }
    return 0;
}

/* Named so that rules and counts know it by the name that programs call. */
static int nvmlEventSetWait(struct event_set *set, struct event *out, int *found) {
    ENTER(NO_DEVICE)
    *found = next_event(set, out);
    return leave(OK);
}

int nvmlEventSetWait_v2(struct event_set *set, struct event *out, unsigned timeout_ms) {
    double until = monotonic_s() + 0.001 * timeout_ms;
    int found = 0, status;
    memset(out, 0, sizeof *out);
    while (!(status = nvmlEventSetWait(set, out, &found)) && !found) {
        if (monotonic_s() >= until)
            return TIMEOUT;
        usleep(10000);
    }
    return status;
}
