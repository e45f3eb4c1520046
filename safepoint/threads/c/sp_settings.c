/* What SP_LEVEL and the other variables of the environment say. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sp_inner.h"

struct sp_settings sp_settings;

static const char *const levels[] = {"off", "minimal", "modify", "full"};

static int wrong(const char *name, const char *text, const char *what) {
    fprintf(stderr, "safepoint: %s=%s: %s; no trace is written\n", name, text, what);
    return 0;
}

static int level_of(const char *from, size_t length) {
    for (int level = 0; level < 4; level++)
        if (strlen(levels[level]) == length && !strncmp(levels[level], from, length))
            return level;
    return -1;
}

/* "full" is of all classes; "variables:full,procedures:off" leaves the others at the highest that is named. */
static int read_levels(const char *text) {
    int highest = 0, found[3] = {-1, -1, -1};
    static const char *const classes[] = {"regions:", "variables:", "procedures:"};
    for (const char *at = text, *end; *at; at = *end ? end + 1 : end) {
        end = at + strcspn(at, ",");
        int which = 0;
        while (which < 3 && strncmp(at, classes[which], strlen(classes[which])))
            which++;
        const char *word = which < 3 ? at + strlen(classes[which]) : at;
        int level = word <= end ? level_of(word, (size_t)(end - word)) : -1;
        if (level < 0)
            return wrong("SP_LEVEL", text, "takes off, minimal, modify, full, for all or as in variables:full,procedures:off");
        for (int each = 0; each < 3; each++)
            if (each == which || which == 3)
                found[each] = level;
        highest = level > highest ? level : highest;
    }
    sp_settings.regions = found[0] < 0 ? highest : found[0];
    sp_settings.variables = found[1] < 0 ? highest : found[1];
    sp_settings.procedures = found[2] < 0 ? highest : found[2];
    return highest > 0;
}

static int read_number(const char *name, uint64_t *to) {
    const char *text = getenv(name);
    if (!text || !*text)
        return 1;
    char *end;
    *to = strtoull(text, &end, 10);
    const char *units = "KkMmGgTt", *unit = *end ? strchr(units, *end) : NULL;
    for (const char *each = units; unit && each <= unit; each += 2)
        *to <<= 10;
    if (text[0] < '0' || text[0] > '9' || (*end && (!unit || end[1])))
        return wrong(name, text, "takes a number, with K, M, G or T after it or without");
    return 1;
}

static int read_ranges(const char *text) {
    sp_settings.range = calloc(strlen(text) / 2 + 1, sizeof *sp_settings.range);
    if (!sp_settings.range)
        return wrong("SP_REGIONS", text, "no memory");
    for (const char *at = text; *at;) {
        char *end;
        uint64_t from = strtoull(at, &end, 10), to = from;
        if (*at < '0' || *at > '9')
            return wrong("SP_REGIONS", text, "takes visits, as in 77,90-92");
        if (*end == '-' && end[1] >= '0' && end[1] <= '9')
            to = strtoull(end + 1, &end, 10);
        if ((*end && *end != ',') || to < from)
            return wrong("SP_REGIONS", text, "takes visits, as in 77,90-92");
        sp_settings.range[sp_settings.ranges][0] = from;
        sp_settings.range[sp_settings.ranges++][1] = to;
        at = *end ? end + 1 : end;
    }
    return 1;
}

int sp_settings_read(void) {
    sp_settings.level_text = getenv("SP_LEVEL");
    if (!sp_settings.level_text || !*sp_settings.level_text || !read_levels(sp_settings.level_text))
        return 0;
    sp_settings.max = (uint64_t)4 << 30;
    sp_settings.range_text = getenv("SP_REGIONS");
    const char *statistics = getenv("SP_STATISTICS");
    sp_settings.statistics = statistics && *statistics && strcmp(statistics, "0");
    sp_settings.rank = -1;
    static const char *const ranks[] = {"SP_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"};
    for (int each = 0; each < 3 && sp_settings.rank < 0; each++)
        if (getenv(ranks[each]) && *getenv(ranks[each]))
            sp_settings.rank = atoi(getenv(ranks[each]));
    if (sp_settings.range_text && *sp_settings.range_text && !read_ranges(sp_settings.range_text))
        return 0;
    return read_number("SP_MAX", &sp_settings.max) && read_number("SP_EDGES", &sp_settings.edges) &&
           read_number("SP_NOISE", &sp_settings.noise) && read_number("SP_SEED", &sp_settings.seed) &&
           read_number("SP_AHEAD", &sp_settings.ahead);
}

int sp_selected(uint64_t visit) {
    for (uint64_t each = 0; each < sp_settings.ranges; each++)
        if (sp_settings.range[each][0] <= visit && visit <= sp_settings.range[each][1])
            return 1;
    return !sp_settings.range;
}

uint32_t sp_between(uint64_t visits) {
    int all = sp_selected(visits + 1);
    uint32_t bits = ON;
    bits |= sp_settings.regions ? REGIONS : 0;
    bits |= sp_settings.regions > 1 && all ? STRUCTURE : 0;
    bits |= sp_settings.procedures ? CALLS : 0;
    bits |= sp_settings.variables ? DIGESTS : 0;
    bits |= sp_settings.variables > 1 && all ? WRITES : 0;
    bits |= sp_settings.variables > 2 && all ? READS : 0;
    return bits;
}

/* Within a region: all or nothing. A visit of 0 is within one of which nothing is recorded. */
uint32_t sp_within(int64_t visit) {
    if (!visit || (visit > 0 && !sp_selected((uint64_t)visit)))
        return ON;
    uint32_t bits = ON;
    bits |= sp_settings.regions > 1 ? REGIONS | STRUCTURE : 0;
    bits |= sp_settings.procedures > 1 ? CALLS : 0;
    bits |= sp_settings.variables > 1 ? DIGESTS | WRITES : 0;
    bits |= sp_settings.variables > 2 ? READS : 0;
    if (sp_settings.noise && sp_settings.regions == 1 && sp_settings.variables == 1)
        bits |= STRUCTURE | WRITES | READS | REHEARSED;
    return bits;
}
