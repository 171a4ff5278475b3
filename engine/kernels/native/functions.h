/* The elementary functions of the contract (CONTRACT.md, section 3), eight at once. */
#ifndef MILLSTREAM_FUNCTIONS_H
#define MILLSTREAM_FUNCTIONS_H

#include "millstream.h"
#include "simd.h"

INLINE f8 f8_exp(f8 x) {
    const f8 top = f8_set(0x1.62e42ep+6f), bottom = f8_set(-0x1.5d589ep+6f);
    f8 inside = f8_select((i32x8)(x > top), top, x);
    inside = f8_select((i32x8)(inside > bottom), inside, bottom); /* NaN becomes bottom, and is put back below */
    f8 n = f8_rint(inside * 0x1.715476p+0f);
    f8 r = (inside - n * 0x1.63p-1f) - n * -0x1.bd0106p-13f;
    f8 p = f8_set(0x1.6a244cp-10f);
    p = p * r + 0x1.1239d4p-7f;
    p = p * r + 0x1.5558f2p-5f;
    p = p * r + 0x1.555492p-3f;
    p = p * r + 0x1.fffffcp-2f;
    f8 y = (p * (r * r) + r) + 1.0f;
    i32x8 whole = __builtin_convertvector(n, i32x8), half = whole >> 1;
    y = (y * (f8)((half + 127) << 23)) * (f8)((whole - half + 127) << 23);
    y = f8_select((i32x8)(x > top), f8_set(INFINITY), y);
    y = f8_select((i32x8)(x < bottom), f8_set(0.0f), y);
    return f8_select((i32x8)(x != x), x, y);
}

INLINE f8 f8_log(f8 x) {
    typedef uint32_t u32x8 __attribute__((vector_size(32)));
    const i32x8 tiny = (i32x8)(x < 0x1p-126f);
    const i32x8 offset = (i32x8)((u32x8)f8_select(tiny, x * 0x1p23f, x) - 0x3f3504f3u);
    const f8 e = f8_from_i32(offset >> 23) - f8_select(tiny, f8_set(23.0f), f8_set(0.0f));
    const f8 f = (f8)((offset & 0x7fffff) + 0x3f3504f3) - 1.0f, z = f * f;
    f8 p = f8_set(0x1.1b418ap-4f);
    p = p * f + -0x1.e2e98p-4f;
    p = p * f + 0x1.e6511ap-4f;
    p = p * f + -0x1.fb433cp-4f;
    p = p * f + 0x1.2332b8p-3f;
    p = p * f + -0x1.5562e2p-3f;
    p = p * f + 0x1.99a546p-3f;
    p = p * f + -0x1.ffffeep-3f;
    p = p * f + 0x1.555546p-2f;
    f8 y = (((z * f) * p + e * -0x1.bd0106p-13f) - z * 0.5f) + f;
    y = y + e * 0x1.63p-1f;
    y = f8_select((i32x8)(x == INFINITY), x, y);
    y = f8_select((i32x8)(x == 0.0f), f8_set(-INFINITY), y);
    return f8_select((i32x8)(x >= 0.0f), y, f8_set(NAN));
}

INLINE f8 f8_softplus(f8 x) { return f8_select((i32x8)(x > 20.0f), x, f8_log(f8_exp(x) + 1.0f)); }
INLINE f8 f8_silu(f8 x) { return x / (f8_exp(-x) + 1.0f); }

INLINE f8 f8_tanh(f8 x) {
    f8 a = f8_abs(x), z = x * x;
    f8 p = f8_set(-0x1.76ac06p-8f);
    p = p * z + 0x1.5256d2p-6f;
    p = p * z + -0x1.b84448p-5f;
    p = p * z + 0x1.110768p-3f;
    p = p * z + -0x1.555534p-2f;
    f8 small = x + (x * z) * p;
    f8 large = 1.0f - 2.0f / (f8_exp(a * 2.0f) + 1.0f);
    return f8_select((i32x8)(a < 0.625f), small, f8_with_sign(large, x));
}

INLINE f8 f8_erf(f8 x) {
    f8 a = f8_abs(x), z = x * x;
    f8 p = f8_set(0x1.4ae4dp-14f);
    p = p * z + -0x1.a485eep-11f;
    p = p * z + 0x1.5419f6p-8f;
    p = p * z + -0x1.b7fbb4p-6f;
    p = p * z + 0x1.ce2d2p-4f;
    p = p * z + -0x1.81273ep-2f;
    p = p * z + 0x1.20dd74p+0f;
    f8 b = f8_select((i32x8)(a > 4.0f), f8_set(4.0f), a);
    f8 q = f8_set(0x1.6bd7f0p-16f);
    q = q * b + -0x1.cec60ap-12f;
    q = q * b + 0x1.138cc0p-8f;
    q = q * b + -0x1.9d0306p-6f;
    q = q * b + 0x1.bc1518p-4f;
    q = q * b + 0x1.443566p-1f;
    q = q * b + 0x1.212c0cp+0f;
    q = q * b + -0x1.8a57ap-13f;
    return f8_select((i32x8)(a < 1.0f), x * p, f8_with_sign(1.0f - f8_exp(-q), x));
}

INLINE f8 f8_gelu_tanh(f8 x) { return (x * 0.5f) * (f8_tanh((x + ((x * x) * x) * 0.044715f) * 0.7978845608028654f) + 1.0f); }
INLINE f8 f8_gelu_erf(f8 x) { return (x * 0.5f) * (f8_erf(x * 0.7071067811865476f) + 1.0f); }
INLINE f8 f8_sigmoid(f8 x) { return 1.0f / (f8_exp(-x) + 1.0f); }
INLINE f8 f8_relu_squared(f8 x) {
    const f8 r = f8_select((i32x8)(x <= 0.0f), f8_set(0.0f), x);
    return r * r;
}

/* The clamped SwiGLU of GPT-OSS. */
INLINE f8 f8_swiglu_clamped(f8 gate, f8 up) {
    const f8 top = f8_set(7.0f), bottom = f8_set(-7.0f), g = f8_select((i32x8)(gate > top), top, gate);
    f8 u = f8_select((i32x8)(up > top), top, up);
    u = f8_select((i32x8)(u < bottom), bottom, u);
    return (u + 1.0f) * (g * f8_sigmoid(g * 1.702f));
}

/* The functions of `ms_activation`, of one value or of a gate and what it gates. */
INLINE f8 f8_activate(ms_activation activation, f8 x) {
    switch (activation) {
    case MS_SILU: return f8_silu(x);
    case MS_GELU_TANH: return f8_gelu_tanh(x);
    case MS_GELU_ERF: return f8_gelu_erf(x);
    case MS_SIGMOID: return f8_sigmoid(x);
    default: return f8_relu_squared(x);
    }
}
INLINE f8 f8_gated(ms_activation activation, f8 gate, f8 up) {
    return activation == MS_SWIGLU_CLAMPED ? f8_swiglu_clamped(gate, up) : f8_activate(activation, gate) * up;
}
INLINE f8 f8_softcap(f8 x, float cap) { return f8_tanh(x / cap) * cap; }

#endif
