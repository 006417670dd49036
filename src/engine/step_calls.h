// The calls of an engine whose ranks are spread over several processes, as bytes: process 0 makes them (engine/rank_steps.h), the others follow
// (engine/step_follower.h). A number for the kind of call, then its values. All processes run the same build.
//   ByteWriter out; out.value(EngineCall::step); put_step(out, plan, wants); ... const TakenStep step = taken_step(in);
#pragma once
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "base/byte_record.h"
#include "engine/options.h"
#include "engine/step_wants.h"
#include "model/weight_changes.h"
#include "model/weight_share.h"

namespace lockstep {

// Calls of models that are trained have the numbers below 128 (trained/model_calls.h).
// weights begins a set, image or changes bring its parameters, hold ends it; layer_image brings one of a layer of multi-token prediction, layer ends it;
// turn is a step of plans that follow each other through the stages of a pipeline (engine/rank_steps.h).
enum class EngineCall : std::uint8_t { make = 128, weights, image, changes, hold, adapter, gone, step, layer_image, layer, states, guess, forget, turn };
constexpr bool is_engine_call(std::uint8_t number) { return number >= 128; }

// What ranks are made with: the layout of a replica, the cache.
void put_engine_options(ByteWriter& out, const EngineOptions& options);
EngineOptions taken_engine_options(ByteReader& in);

// What stands in another process for the weights and adapters of process 0, by their identities there: no values, but for the ranks' shares
// (engine/held_shares.h).
struct StandIns {
  std::map<std::uint64_t, std::shared_ptr<const WeightSet>> weights;
  std::map<std::uint64_t, std::shared_ptr<const AdapterWeights>> adapters;
};
// An adapter with its values; its stand-in is added. Returns what was added, and the values.
void put_adapter(ByteWriter& out, const AdapterWeights& adapter, const WeightImages& images);
std::pair<std::shared_ptr<const AdapterWeights>, WeightImages> taken_adapter(ByteReader& in, const Manifest& model, StandIns& known);

void put_parameter(ByteWriter& out, const HostParameter& values);
HostParameter taken_parameter(ByteReader& in);
void put_changes(ByteWriter& out, const ParameterChanges& changes);
ParameterChanges taken_changes(ByteReader& in);

// The part of a plan that other ranks need: rows, pages, known tokens. Only the first rank samples.
void put_step(ByteWriter& out, const std::vector<PlannedSlice>& plan, const StepWants& wants);
struct TakenStep {
  std::vector<Sequence> sequences;  // of the plan, at the same positions
  std::vector<PlannedSlice> plan;
  StepWants wants;
};
// Error internal for weights or an adapter that are not known.
TakenStep taken_step(ByteReader& in, const StandIns& known = {});

// What the layer of multi-token prediction is asked (RankSteps::guess): of each sequence its last token, its pages, and what tokens are drawn with.
void put_guess(ByteWriter& out, std::span<Sequence* const> sequences, std::int64_t tokens);
struct TakenGuess {
  std::vector<Sequence> sequences;
  std::vector<Sequence*> asked;
  std::int64_t tokens = 0;
};
TakenGuess taken_guess(ByteReader& in, const StandIns& known);

}  // namespace lockstep
