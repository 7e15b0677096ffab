// Which instruction sets this program was built with and this machine can run.
#pragma once

#include <string>
#include <vector>

#include "program.hpp"

namespace halfgp {

// In order of preference, the best last.
std::vector<const Target*> supported_targets();

// The target of that name, or null where the machine or the build lacks it.
const Target* find_target(const std::string& name);

}  // namespace halfgp
