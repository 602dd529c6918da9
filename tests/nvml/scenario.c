/* The scenario file: reading it, reading it again when it changes, and what a value is at a moment. */
#include "stand_in.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

#define AS_NAME(name, moves) #name,
#define AS_MOVES(name, moves) moves,
static const char *const key_names[KEY_COUNT] = {DEVICE_NUMBERS(AS_NAME)};
static const char key_moves[KEY_COUNT] = {DEVICE_NUMBERS(AS_MOVES)};
static const double tau = 6.283185307179586;
static const double check_every_s = 0.02;

struct world world = {.loads = 1};
static struct world draft;
static struct timespec read_stamp;
static ino_t read_inode;
static double next_check;

static double clock_s(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double given_s = -1;

/* From here on the library lives at this moment: what a program measures between two of them is exact. */
void stand_in_clock(double seconds) { given_s = seconds; }

double monotonic_s(void) { return given_s < 0 ? clock_s(CLOCK_MONOTONIC) : given_s; }

struct device *gpu_at(int index) { return index >= 0 && index < MAX_GPUS ? &world.devices[index] : NULL; }

struct device *mig_at(int gpu, int instance) {
    return gpu >= 0 && gpu < MAX_GPUS && instance >= 0 && instance < MIG_PER_GPU
               ? &world.devices[MAX_GPUS + gpu * MIG_PER_GPU + instance]
               : NULL;
}

int is_device(const struct device *device) {
    return device >= world.devices && device < world.devices + MAX_DEVICES &&
           ((const char *)device - (const char *)world.devices) % (long)sizeof(struct device) == 0;
}

static double phase(const struct device *device, int key) { return 0.7 * device->gpu + 0.37 * key; }

static int is_moving(int key) { return world.wave_s > 0 && (key >= KEY_COUNT || key_moves[key]); }

/* A moving value swings between (1 - depth) and 1 times its number, so it never leaves its range. */
double value_at(const struct device *device, int key, double now) {
    double number = device->values[key].number, renew_s = device->values[KEY_util_renew_s].number;
    if (!is_moving(key))
        return number;
    /* A GeForce of the Blackwell generation renews util once a second. */
    if (key == KEY_util && renew_s > 0)
        now = floor(now / renew_s) * renew_s;
    return number * (1 - world.wave_depth * (0.5 - 0.5 * sin(tau * now / world.wave_s + phase(device, key))));
}

double area_at(const struct device *device, int key, double now) {
    double number = device->values[key].number, span = now - device->since;
    double area = number * span;
    if (is_moving(key)) {
        double omega = tau / world.wave_s, shift = phase(device, key);
        double swing = (cos(omega * device->since + shift) - cos(omega * now + shift)) / omega;
        area = number * ((1 - world.wave_depth / 2) * span + world.wave_depth / 2 * swing);
    }
    return device->area[key] + area;
}

static void refuse(const char *line) {
    fprintf(stderr, "stand-in NVML: bad scenario line: %s\n", line);
    abort();
}

/* "12.5", "nan", "none" (NOT_SUPPORTED) or "!15" (fails with that return code). */
static struct value parse_value(const char *word, const char *line) {
    struct value value = {0, OK};
    char *end;
    if (!strcmp(word, "none")) {
        value.status = NOT_SUPPORTED;
        return value;
    }
    if (word[0] == '!') {
        value.status = (int)strtol(word + 1, &end, 10);
    } else {
        value.number = strtod(word, &end);
    }
    if (*end || end == word)
        refuse(line);
    return value;
}

static struct device *start_device(struct device *device, int gpu, int instance) {
    memset(device, 0, sizeof *device);
    device->present = 1;
    device->gpu = gpu;
    device->instance = instance;
    device->gi = device->ci = 0xffffffffu;
    for (int key = 0; key < VALUE_COUNT; key++)
        device->values[key].status = NOT_SUPPORTED;
    return device;
}

static void parse_process(struct device *device, const char *rest, const char *line) {
    struct process process = {0};
    char bytes[32];
    if (device->process_count == MAX_PROCESSES ||
        sscanf(rest, "%u %31s %c sm=%u mem=%u enc=%u dec=%u", &process.pid, bytes, &process.type, &process.sm,
               &process.mem, &process.enc, &process.dec) != 7)
        refuse(line);
    process.bytes = strcmp(bytes, "none") ? strtoull(bytes, NULL, 10) : ~0ull;
    device->processes[device->process_count++] = process;
}

static void parse_rule(const char *word, const char *rest, const char *line) {
    struct rule *rule = &draft.rules[draft.rule_count];
    char gpu[16];
    double what;
    if (draft.rule_count == MAX_RULES)
        refuse(line);
    memset(rule, 0, sizeof *rule);
    if (sscanf(rest, "%63s %15s %lf after %ld times %ld", rule->function, gpu, &what, &rule->after, &rule->times) != 5)
        refuse(line);
    snprintf(rule->text, sizeof rule->text, "%s", line);
    rule->gpu = strcmp(gpu, "*") ? atoi(gpu) : -1;
    if (!strcmp(word, "hang"))
        rule->hang_s = what;
    else
        rule->code = (int)what;
    for (int i = 0; i < world.rule_count; i++)
        if (!strcmp(world.rules[i].text, rule->text))
            rule->seen = world.rules[i].seen;
    draft.rule_count++;
}

static void parse_device_line(struct device *device, const char *word, const char *rest, const char *line) {
    char text[96];
    int id;
    if (!strcmp(word, "name")) {
        snprintf(device->name, sizeof device->name, "%s", rest);
    } else if (!strcmp(word, "uuid")) {
        snprintf(device->uuid, sizeof device->uuid, "%s", rest);
    } else if (!strcmp(word, "pci")) {
        snprintf(device->pci, sizeof device->pci, "%s", rest);
    } else if (!strcmp(word, "serial")) {
        snprintf(device->serial, sizeof device->serial, "%s", rest);
    } else if (!strcmp(word, "process")) {
        parse_process(device, rest, line);
    } else if (!strcmp(word, "xid")) {
        if (device->xids == MAX_XIDS ||
            sscanf(rest, "%d %d", &device->xid_serial[device->xids], &device->xid_code[device->xids]) != 2)
            refuse(line);
        device->xids++;
    } else if (!strcmp(word, "gpm")) {
        if (sscanf(rest, "%d %95s", &id, text) != 2 || id < 1 || id >= GPM_COUNT)
            refuse(line);
        device->values[GPM_KEY(id)] = parse_value(text, line);
    } else {
        for (int key = 0; key < KEY_COUNT; key++)
            if (!strcmp(word, key_names[key])) {
                device->values[key] = parse_value(rest, line);
                return;
            }
        refuse(line);
    }
}

static struct device *parse_line(struct device *device, char *line) {
    char word[64];
    int used = 0, gpu, instance;
    unsigned gi, ci;
    if (sscanf(line, " %63s %n", word, &used) < 1 || word[0] == '#')
        return device;
    const char *rest = line + used;
    if (!strcmp(word, "gpu")) {
        gpu = atoi(rest);
        if (gpu != draft.gpus || gpu >= MAX_GPUS)
            refuse(line);
        draft.gpus++;
        return start_device(&draft.devices[gpu], gpu, -1);
    }
    if (!strcmp(word, "mig_device")) {
        if (sscanf(rest, "%d %d %u %u", &gpu, &instance, &gi, &ci) != 4 || gpu >= draft.gpus || instance < 0 ||
            instance >= MIG_PER_GPU)
            refuse(line);
        device = start_device(&draft.devices[MAX_GPUS + gpu * MIG_PER_GPU + instance], gpu, instance);
        device->gi = gi;
        device->ci = ci;
        return device;
    }
    if (!strcmp(word, "error") || !strcmp(word, "hang"))
        parse_rule(word, rest, line);
    else if (device)
        parse_device_line(device, word, rest, line);
    else if (!strcmp(word, "driver"))
        snprintf(draft.driver, sizeof draft.driver, "%s", rest);
    else if (!strcmp(word, "nvml"))
        snprintf(draft.nvml, sizeof draft.nvml, "%s", rest);
    else if (!strcmp(word, "branch"))
        snprintf(draft.branch, sizeof draft.branch, "%s", rest);
    else if (!strcmp(word, "cuda"))
        draft.cuda = atoi(rest);
    else if (!strcmp(word, "loads"))
        draft.loads = atoi(rest);
    else if (!strcmp(word, "count_at_init"))
        draft.count_at_init = atoi(rest);
    else if (!strcmp(word, "latency_us"))
        draft.latency_us = atof(rest);
    else if (!strcmp(word, "serial"))
        draft.serial = atoi(rest);
    else if (!strcmp(word, "wave")) {
        if (sscanf(rest, "%lf %lf", &draft.wave_s, &draft.wave_depth) != 2)
            refuse(line);
    } else
        refuse(line);
    return device;
}

/* The new values hold from the moment at which the file was written, so averages and counters do not depend on us. */
static void adopt(double changed) {
    for (int i = 0; i < MAX_DEVICES; i++) {
        struct device *old = &world.devices[i], *new = &draft.devices[i];
        if (old->present && new->present) {
            double from = changed > old->since ? changed : old->since;
            for (int key = 0; key < VALUE_COUNT; key++)
                new->area[key] = isfinite(old->values[key].number) ? area_at(old, key, from) : old->area[key];
            new->since = from;
            new->pairs = old->pairs;
        } else if (new->present) {
            new->since = changed;
        }
    }
    for (int i = 0; i < MAX_DEVICES; i++)
        if (draft.devices[i].present || world.devices[i].present)
            world.devices[i] = draft.devices[i];
    size_t head = offsetof(struct world, devices);
    memcpy(&world, &draft, head);
}

/* Called with the session's lock held. Looks at the file at most every 20 ms; `at_once` looks in any case. */
void reload_scenario(int at_once) {
    double now = monotonic_s();
    const char *path = getenv("NVML_STAND_IN");
    struct stat facts;
    char line[512];
    struct device *device = NULL;
    if ((!at_once && now < next_check) || !path)
        return;
    next_check = now + check_every_s;
    if (stat(path, &facts) || (facts.st_ino == read_inode && facts.st_mtim.tv_sec == read_stamp.tv_sec &&
                               facts.st_mtim.tv_nsec == read_stamp.tv_nsec))
        return;
    FILE *file = fopen(path, "r");
    if (!file)
        return;
    read_stamp = facts.st_mtim;
    read_inode = facts.st_ino;
    for (int i = 0; i < MAX_DEVICES; i++)
        draft.devices[i].present = 0;
    memset(&draft, 0, offsetof(struct world, devices));
    draft.loads = 1;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        device = parse_line(device, line);
    }
    fclose(file);
    double age = clock_s(CLOCK_REALTIME) - ((double)facts.st_mtim.tv_sec + 1e-9 * (double)facts.st_mtim.tv_nsec);
    adopt(now - (age > 0 ? age : 0));
}
