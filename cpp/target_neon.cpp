#include <arm_neon.h>

#include "program.hpp"

namespace halfgp {
namespace {  // nothing compiled here may be linked into code that runs on lesser machines
#include "simd_neon.hpp"
#include "target.inl"
}  // namespace

extern const Target target_neon;
const Target target_neon{"neon", tile_functions<float>(), tile_functions<double>(), kFixedPoint, near_strip,
                          GroupBuffers::bytes, factor_group, multiply_adds};

}  // namespace halfgp
