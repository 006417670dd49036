// What process 0 tells the others of a model comes back whole: a field that is left out would give another model there.
#include "trained/model_calls.h"

#include <gtest/gtest.h>

#include <optional>
#include <tuple>

namespace lockstep {
namespace {

TEST(ModelCalls, WhatEachProcessOpensIsWhatProcess0Opens) {
  ModelSource source;
  source.runtime.model = "a/folder";
  source.runtime.profile = "cpu-f32";
  source.runtime.threads = 3;
  source.runtime.device = "cuda";
  source.runtime.backend = "deferred";
  source.runtime.isa = "avx2";
  source.runtime.mla_norm_eps = 1e-3;
  source.runtime.ranks = "tp=2";
  source.runtime.context = 77;
  source.values = true;
  source.untrained = true;
  source.seed = 9;
  source.deviation = 0.25;
  for (const bool own : {false, true}) {
    source.runtime.new_mtp = own;
    source.runtime.mtp_shares_keys = own ? std::optional<bool>(false) : std::nullopt;
    source.runtime.mtp_normed_state = own ? std::optional<bool>(true) : std::nullopt;
    ByteWriter out;
    put_source(out, source);
    ByteReader in(out.bytes());
    const ModelSource got = taken_source(in);
    EXPECT_EQ(in.left(), 0u);
    const RuntimeSettings &a = got.runtime, &b = source.runtime;
    EXPECT_TRUE(std::tie(a.model, a.profile, a.device, a.backend, a.isa, a.ranks) == std::tie(b.model, b.profile, b.device, b.backend, b.isa, b.ranks));
    EXPECT_TRUE(std::tie(a.threads, a.mla_norm_eps, a.context) == std::tie(b.threads, b.mla_norm_eps, b.context));
    EXPECT_EQ(a.new_mtp, b.new_mtp);
    EXPECT_TRUE(a.mtp_shares_keys == b.mtp_shares_keys && a.mtp_normed_state == b.mtp_normed_state) << "what a depth is given, and over which keys";
    EXPECT_TRUE(std::tie(got.values, got.untrained, got.seed, got.deviation) == std::tie(source.values, source.untrained, source.seed, source.deviation));
  }
}

TEST(ModelCalls, AStateComesBackWhole) {
  TrainerState state;
  state.masters.emplace_back(std::vector<float>{1, 2});
  state.masters.emplace_back();
  state.first_moments.emplace_back(std::vector<float>{3});
  state.step = 5;
  ByteWriter out;
  put_state(out, state);
  ByteReader in(out.bytes());
  const TrainerState got = taken_state(in);
  EXPECT_EQ(in.left(), 0u);
  EXPECT_EQ(got.masters, state.masters);
  EXPECT_EQ(got.first_moments, state.first_moments);
  EXPECT_EQ(got.second_moments, state.second_moments);
  EXPECT_EQ(got.step, 5);
}

}  // namespace
}  // namespace lockstep
