/* What the two halves of the stand-in performance library share: the scenario, and the layout of their images.
 *
 * NVPERF_SCENARIO names a file of lines "word value", read again at every call, so that a test may change it while a
 * program runs. The words are explained in stand_in.py, which writes it.
 */
#ifndef NVPERF_STAND_IN_H
#define NVPERF_STAND_IN_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, ERROR = 1, INVALID_ARGUMENT = 8, INVALID_METRIC = 9, DRIVER_NOT_LOADED = 10 };
#define MAX_METRICS 8
#define MAX_SAMPLES 64
#define MAGIC 0x4e56505453544e44ULL

struct sample {
    uint64_t start, end;
    double values[MAX_METRICS];
};

struct image {
    uint64_t magic;
    uint64_t count;
    struct sample samples[MAX_SAMPLES];
};

/* A structure of a call must begin with exactly the size of its fields, the padding behind them left out. */
#define END_OF(type, last) (offsetof(struct type, last) + sizeof(((struct type *)0)->last))
#define CHECK(p, type, last)                                                                                           \
    if (!(p) || (p)->structSize != END_OF(type, last) || (p)->pPriv)                                                   \
        return INVALID_ARGUMENT;

static int scripted_text(const char *word, char *out, size_t size) {
    const char *path = getenv("NVPERF_SCENARIO");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256];
    int found = 0;
    if (!file)
        return 0;
    while (!found && fgets(line, sizeof line, file)) {
        size_t length = strlen(word);
        if (strncmp(line, word, length) == 0 && line[length] == ' ') {
            line[strcspn(line, "\n")] = 0;
            snprintf(out, size, "%s", line + length + 1);
            found = 1;
        }
    }
    fclose(file);
    return found;
}

static double scripted(const char *word, double otherwise) {
    char text[256];
    return scripted_text(word, text, sizeof text) ? strtod(text, NULL) : otherwise;
}

#endif
