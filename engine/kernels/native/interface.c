/* What the library says about itself and about the processor it runs on. */
#include <stddef.h>

#include "millstream.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

int ms_interface(void) { return MS_INTERFACE; }

const char *ms_encoding_name(int encoding) {
#define NAME(name) #name,
    static const char *const names[MS_ENCODINGS] = {"F32", "F16", "BF16", MS_PACKED(NAME)};
    return encoding >= 0 && encoding < MS_ENCODINGS ? names[encoding] : NULL;
}

#if defined(__x86_64__)
static void cpuid(uint32_t leaf, uint32_t sub, uint32_t r[4]) {
    __asm__ volatile("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "a"(leaf), "c"(sub));
}

int ms_processor(void) {
    uint32_t one[4], seven[4], top[4], extended[4], saved, high;
    cpuid(0, 0, top);
    cpuid(1, 0, one);
    if (top[0] < 7 || !(one[2] >> 27 & 1)) return 0; /* the operating system saves wide registers */
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    cpuid(7, 0, seven);
    cpuid(0x80000001u, 0, extended);
    const int ymm = (saved & 6) == 6, zmm = (saved & 0xe6) == 0xe6;
    const int fma = one[2] >> 12 & 1, movbe = one[2] >> 22 & 1, f16c = one[2] >> 29 & 1, lzcnt = extended[2] >> 5 & 1;
    const int bmi = (seven[1] >> 3 & 1) && (seven[1] >> 8 & 1), avx2 = seven[1] >> 5 & 1;
    const int v3 = ymm && fma && movbe && f16c && lzcnt && bmi && avx2;
    const uint32_t v4 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31; /* F, DQ, CD, BW, VL */
    const int vnni = seven[2] >> 11 & 1;
    return v3 | (v3 && zmm && (seven[1] & v4) == v4 && vnni) << 1;
}
#elif defined(__aarch64__) && defined(__linux__)
int ms_processor(void) { return (getauxval(AT_HWCAP) >> 20 & 1) << 2; } /* HWCAP_ASIMDDP */
#elif defined(__aarch64__) && defined(__APPLE__)
int ms_processor(void) { return 1 << 2; } /* every Apple processor for this system has it */
#else
int ms_processor(void) { return 0; }
#endif
