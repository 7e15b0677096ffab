#include <immintrin.h>

#include "program.hpp"

namespace halfgp {
namespace {  // nothing compiled here may be linked into code that runs on lesser machines
#include "simd_avx512.hpp"
#include "target.inl"
}  // namespace

extern const Target target_avx512;
const Target target_avx512{"avx512", tile_functions<float>(), tile_functions<double>(), kFixedPoint, near_strip,
                          GroupBuffers::bytes, factor_group, multiply_adds};

}  // namespace halfgp
