#include <cmath>
#include <cstring>

#include "program.hpp"

namespace halfgp {
namespace {  // nothing compiled here may be linked into code that runs on lesser machines
#include "simd_scalar.hpp"
#include "target.inl"
}  // namespace

extern const Target target_scalar;
const Target target_scalar{"scalar", tile_functions<float>(), tile_functions<double>(), kFixedPoint, near_strip,
                          GroupBuffers::bytes, factor_group, multiply_adds};

}  // namespace halfgp
