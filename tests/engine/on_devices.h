// Tests of the engine on every kind of device; one that is not here is skipped, with the reason.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "api/devices.h"

namespace conclave::testing {

class OnDevices : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    const std::string absence = name == "cuda" ? cuda_absence_here() : name == "metal" ? metal_absence_here() : "";
    if (!absence.empty()) GTEST_SKIP() << absence;
  }
};

}  // namespace conclave::testing
