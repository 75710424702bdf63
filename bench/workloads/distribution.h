/* Block sizes that programs request: log-uniform ranges, and two published distributions.
 *
 * A distribution is a list of ranges, with the share of requests up to and including each range in
 * millionths. Within a range all octaves are equally likely, and sizes within an octave too. There
 * are no quantile tables, because they would take up cache that the measured heap should have. */
#ifndef MALLARD_DISTRIBUTION_H
#define MALLARD_DISTRIBUTION_H

#include "workload.h"

/* Log-uniform over the octaves [low, 2 low), [2 low, 4 low), …, the last of which may end early at
 * `high`, inclusive. Ranges are below 4 GiB, as in random_size. */
static inline size_t random_log(uint64_t *state, uint64_t low, uint64_t high) {
    uint64_t octaves = 0;
    while ((low << (octaves + 1)) <= high)
        octaves++;
    const uint64_t first = low << random_size(state, 0, octaves);
    const uint64_t last = first * 2 - 1;
    return random_size(state, first, last < high ? last : high);
}

typedef struct {
    uint32_t share; /* of all requests up to this range, in millionths */
    uint32_t low, high;
} Step;

static inline size_t draw(uint64_t *state, const Step *step) {
    const uint32_t at = (uint32_t)random_size(state, 0, 999999);
    while (at >= step->share)
        step++;
    return random_log(state, step->low, step->high);
}

/* A fleet of servers, after Zhou et al., "Characterizing a Memory Allocator at Warehouse Scale"
 * (ASPLOS 2024): 98 % of the objects are smaller than 1 KiB and hold 28 % of the bytes; objects
 * above 8 KiB hold about half of the bytes, those above 256 KiB a fifth. The shares of the octaves
 * below 1 KiB are chosen to produce these sums (28 %, 46 %, 21 %; the mean is 254 B). Objects end
 * at 1 MiB, since the tail above would make a run's memory depend on a few draws. */
static const Step FLEET[] = {
    {180000, 8, 15},         {440000, 16, 31},           {700000, 32, 63},
    {860000, 64, 127},       {940000, 128, 255},         {970000, 256, 511},
    {980000, 512, 1023},     {998460, 1024, 8191},       {999730, 8192, 65535},
    {999910, 65536, 262143}, {1000000, 262144, 1048576},
};

/* Values of a key-value cache, after Atikoglu et al., "Workload Analysis of a Large-Scale Key-Value
 * Store" (SIGMETRICS 2012), their pool ETC: 44 % of the values have fewer than 15 bytes, the rest
 * follow a generalised Pareto distribution with scale 214.476 and shape 0.348238. Its distribution
 * function at the powers of two gives the steps; it ends at 16 KiB with the last 0.004 %. */
static const Step CACHE_VALUES[] = {
    {441550, 1, 14},      {483551, 15, 31},     {551757, 32, 63},       {655728, 64, 127},
    {783662, 128, 255},   {897876, 256, 511},   {965556, 512, 1023},    {991535, 1024, 2047},
    {998366, 2048, 4095}, {999730, 4096, 8191}, {1000000, 8192, 16384},
};

/* An item of that cache in one block: a header of 48 bytes, a key of 16 to 45 bytes (the paper
 * measured a mean of about 36, most keys between 20 and 40) and the value. */
static inline size_t draw_item(uint64_t *state) {
    return 48 + random_size(state, 16, 45) + draw(state, CACHE_VALUES);
}

#endif
