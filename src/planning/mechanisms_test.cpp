#include "planning/mechanisms.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "planning/memory_plan.h"

namespace lockstep {
namespace {

const std::string kRoot = LOCKSTEP_SOURCE_DIR;

TEST(Mechanisms, AreTheModels) {
  const Mechanisms sparse = mechanisms_of({.model = kRoot + "/models/countdown-glm"}),
                   dense = mechanisms_of({.model = kRoot + "/tests/golden/llama/tiny.json"});
  EXPECT_TRUE(sparse.indexer && sparse.router_bias);
  EXPECT_FALSE(dense.indexer || dense.router_bias);
  const Mechanisms unknown = mechanisms_of({.model = kRoot + "/no-such-folder"});
  EXPECT_TRUE(unknown.indexer && unknown.router_bias);
}

TEST(Mechanisms, AnEpsilonOfLatentNormsIsRefusedWhereThereAreNone) {
  EXPECT_NO_THROW(planned_model({.model = kRoot + "/models/countdown-glm", .mla_norm_eps = 1e-5}));
  for (const char* family : {"llama", "qwen3"}) {
    const std::string config = fmt::format("{}/tests/golden/{}/tiny.json", kRoot, family);
    EXPECT_NO_THROW(planned_model({.model = config}));
    try {
      planned_model({.model = config, .mla_norm_eps = 1e-5});
      ADD_FAILURE() << family;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::unsupported);
      EXPECT_EQ(e.message(), fmt::format("mla_norm_eps is 1e-05, and a model of type {} has no latent norms; allowed is 0, which leaves it out", family));
    }
  }
}

TEST(Mechanisms, AModelThatIsNowhereIsToldTheNearestOfTheCatalog) {
  try {
    planned_model({.model = "deepsek-v3"});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::not_found);
    EXPECT_EQ(e.message(), "there is no folder, file or model of the catalog 'deepsek-v3'; did you mean 'deepseek-v3'?");
  }
}

}  // namespace
}  // namespace lockstep
