/* Handles and what a device is: identity, memory, MIG instances. */
#include "stand_in.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct device *handle;

READ_TEXT(nvmlDeviceGetName, name)
READ_TEXT(nvmlDeviceGetUUID, uuid)
READ_TEXT(nvmlDeviceGetSerial, serial)
READ_UINT(nvmlDeviceGetArchitecture, architecture, 1)
READ_UINT(nvmlDeviceGetBrand, brand, 1)
READ_UINT(nvmlDeviceGetNumGpuCores, cores, 1)
READ_UINT(nvmlDeviceGetComputeMode, compute_mode, 1)
READ_UINT(nvmlDeviceGetPersistenceMode, persistence, 1)
READ_UINT(nvmlDeviceGetVirtualizationMode, virtualization, 1)
READ_UINT(nvmlDeviceGetDisplayMode, display_mode, 1)
READ_UINT(nvmlDeviceGetDisplayActive, display_active, 1)
READ_TWO_UINTS(nvmlDeviceGetCudaComputeCapability, compute_major, compute_minor, 1)
READ_TWO_UINTS(nvmlDeviceGetMigMode, mig, mig, 1)

int nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER(NO_DEVICE)
    *count = (unsigned)counted_gpus();
    return leave(OK);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *out) {
    /* Rules and latency of the GPU hold for the search of its handle too: a lost GPU fails here. */
    ENTER(index < MAX_GPUS && gpu_at((int)index)->present ? gpu_at((int)index) : NO_DEVICE)
    if (index >= (unsigned)counted_gpus())
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

static int write_pci(const char *address, struct pci_info *info) {
    memset(info, 0, sizeof *info);
    if (sscanf(address, "%x:%x:%x", &info->domain, &info->bus, &info->device) != 3)
        return NOT_SUPPORTED;
    snprintf(info->bus_id, sizeof info->bus_id, "%s", address);
    snprintf(info->legacy_bus_id, sizeof info->legacy_bus_id, "%04X:%02X:%02X.0", info->domain & 0xffffu,
             info->bus & 0xffu, info->device & 0xffu);
    return OK;
}

int nvmlDeviceGetPciInfo_v3(handle device, struct pci_info *info) {
    ENTER(device)
    return leave(write_pci(gpu_at(device->gpu)->pci, info));
}

/* Every link of every GPU ends at one of four switches. */
int nvmlDeviceGetNvLinkRemotePciInfo_v2(handle device, unsigned link, struct pci_info *info) {
    ENTER(device)
    char address[32];
    unsigned active = 0;
    int status = read_uint(device, KEY_nvlink_active, 1, &active);
    snprintf(address, sizeof address, "00000000:%02X:00.0", 0xC0 + link % 4);
    return leave(status || link >= active ? NOT_SUPPORTED : write_pci(address, info));
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
