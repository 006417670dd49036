// Parity: checks that the training forward, every way of serving and every machine configuration give the same bits, and that
// optimizer steps do not depend on how the batch was split, packed, ordered or computed.
//   ParityReport report = run_parity(load_parity_model("models/countdown-glm"), {.cases = 100}); if (!report.passed()) ...
// Random cases over everything that must not matter; engagement counters that show that each path ran; a negative control that must be found
// at the right operation. Knows no command line. One thread at a time; it makes its own runtimes.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/stop_token.h"
#include "model/model.h"

namespace lockstep {

struct ParityModel {
  // Tells the other processes which model to make: the one that is compared, the same with a value head, or the control's own small one.
  enum class Kind : std::uint8_t { compared, value_head, control };

  std::shared_ptr<const Model> model;
  WeightImages masters;
  WeightImages layer = {};  // of its layer of multi-token prediction, whose guesses are then compared too; empty: it has none
  Kind kind = Kind::compared;
};

// Of a model folder; mla_norm_eps 0: the family's own. Errors: those of load_model_folder.
ParityModel load_parity_model(const std::string& folder, double mla_norm_eps = 0);

class ProcessMail;

struct ParityOptions {
  std::int64_t cases = 100;  // random ones; edge lengths come on top
  std::uint64_t seed = 0;
  std::string profile = "cpu-bf16w";
  std::string ranks;            // one more layout of ranks (parallel/layout.h), beside those that are always compared
  ProcessMail* lead = nullptr;  // in process 0: that layout's ranks are in all processes, which repeat its calls (parity_follower); null: threads
  // Of the ways that all kinds of steps have, each kind takes one in so many, the next kind the next one of them, and the seed says who begins: a model with
  // as many kinds goes every way. For runs of many models.
  std::int64_t step_share = 1;
  std::string device = "cpu";  // emulated or cuda: forwards and steps on that device are compared too
  bool quiet = true;           // no progress on stderr
  StopToken stop = {};
};

// Where two runs first differ.
struct ParityMismatch {
  std::string operation;                 // "linear model.layers.0.self_attn.q_a_proj.weight", "gradient NAME", "log-probability"
  int layer = -1;                        // -1: none
  std::vector<std::int64_t> coordinate;  // of the operation's output: [position, column]; of a tensor: its indices
  std::uint32_t expected = 0, got = 0;   // bits
  std::string run;                       // what was compared: way, place, case
};

struct ParityControl {
  std::string profile;              // a profile that differs only in its leaf count
  bool internal_model = false;      // the model has no sum that is long enough; a small one of our own took its place
  bool detected = false;            // the training forward differs, first at the operation that the manifest predicts
  bool step_detected = false;       // and so do the weights after a step
  bool serving_detected = false;    // and so does every way of serving; for one of them the operation is checked too
  std::string serving_missed;       // the way that did not differ, or named another operation
  bool over_processes = false;      // ranks are compared over processes, so this control is too:
  bool processes_detected = false;  // training and serving there have the right bits under the right contract, and under this one
                                    // other bits, first at that operation
  std::string processes_missed;     // what did not
  std::string operation, expected_operation;
  int layer = -1;
  std::int64_t different = 0;  // log-probabilities that the control changed
};

struct ParityCounter {
  std::string name;
  std::int64_t value = 0;
  bool required = false;  // 0 fails
};

// What was compared in one configuration: backend, instruction set, threads, page size, layout of ranks. What is promised must not be 0.
struct ParityVisit {
  std::string place;
  std::int64_t training = 0, serving = 0, steps = 0;  // forwards of training, ways of serving, optimiser steps
  bool promises_forward = false, promises_steps = false;
  bool visited() const { return (!promises_forward || (training > 0 && serving > 0)) && (!promises_steps || steps > 0); }
};

struct ParityReport {
  std::int64_t cases = 0, comparisons = 0;  // sequences; (sequence, way) pairs
  std::int64_t steps = 0;                   // optimiser steps compared
  std::int64_t tokens = 0;                  // log-probabilities compared
  std::int64_t mismatches = 0;              // comparisons and steps with a different bit
  std::optional<ParityMismatch> first_mismatch;
  std::vector<ParityCounter> engagement;
  ParityControl control;
  std::vector<ParityVisit> visits;     // where it ran
  std::vector<std::string> miscounts;  // where kernels did other work than lengths and the config ask for (model/forward_counts.h)
  std::string profile;
  bool trains = true;  // false: under this profile not all weights train, and no step of all of them is compared
  bool adapts = true;  // false: a profile for serving alone, of which only the forward is compared
  std::uint64_t seed = 0;
  double seconds = 0, forward_seconds = 0;
  double tokens_per_second() const { return forward_seconds > 0 ? static_cast<double>(tokens) / forward_seconds : 0; }
  std::vector<std::string> idle() const;  // required counters that are 0, and places that were promised and not visited
  bool passed() const {
    return mismatches == 0 && idle().empty() && miscounts.empty() && control.detected && control.serving_detected &&
           (control.step_detected || !(trains || adapts)) && (control.processes_detected || !control.over_processes);
  }
};

// In the other processes: the function that performs the calls of process 0's run of the same model (parallel/follow_calls.h). Model and mail outlive
// it.
std::function<void(const std::string& call)> parity_follower(const ParityModel& model, ProcessMail& mail);
// In the other processes: repeats the calls of process 0's run until it ends, then returns true. In process 0 or a single process: returns false at
// once.
bool follow_parity(const ParityModel& model);
// Errors: invalid_argument; numeric when the model's values are no numbers; cancelled.
ParityReport run_parity(const ParityModel& model, const ParityOptions& options);
nlohmann::ordered_json to_json(const ParityReport& report);
std::string to_text(const ParityReport& report);

}  // namespace lockstep
