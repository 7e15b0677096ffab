#include "dispatch.hpp"

namespace halfgp {

extern const Target target_scalar;
#ifdef HALFGP_X86
extern const Target target_avx2, target_avx512, target_avx512vnni;
#endif
#ifdef HALFGP_NEON
extern const Target target_neon;
#endif

std::vector<const Target*> supported_targets() {
  std::vector<const Target*> targets{&target_scalar};
#ifdef HALFGP_X86
  // The builtin asks both the processor and, for the wider registers, the operating system.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx2) targets.push_back(&target_avx2);
  if (avx512) targets.push_back(&target_avx512);
  if (avx512 && __builtin_cpu_supports("avx512vnni")) targets.push_back(&target_avx512vnni);
#endif
#ifdef HALFGP_NEON
  targets.push_back(&target_neon);  // part of the architecture: there is nothing to ask
#endif
  return targets;
}

const Target* find_target(const std::string& name) {
  for (const Target* target : supported_targets())
    if (name == target->name) return target;
  return nullptr;
}

}  // namespace halfgp
