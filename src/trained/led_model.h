// A model that several processes train together: process 0 makes the calls of its TrainedModel, and the others repeat them, each with its own ranks
// (parallel/process_ranks.h), also the steps of an engine over ranks (engine/step_follower.h). Calls travel as plain values (trained/model_calls.h);
// files, data and output are process 0's alone.
//   if (follow_processes({.transport = "mpi"}, "auto")) return 0;   open_beside({.runtime = settings}); auto model = make_trained_model(base, {});
// Every process has the model's folder under the same path. Models of one base and of one for critics at a time, as many as process 0 makes.
#pragma once
#include "parallel/processes.h"
#include "trained/trained_model.h"

namespace lockstep {

// What each process opens first.
struct ModelSource {
  RuntimeSettings runtime;
  bool values = false;     // open_value_model, beside the model that was opened before: critics are made of it
  bool untrained = false;  // open_untrained_model with these; else open_model
  std::uint64_t seed = 0;
  double deviation = 0;
};

// Joins the processes of these settings (parallel/processes.h). True in all but the first: they have followed it until it ended, each with the instruction set
// that its own command line names, since hosts may differ.
bool follow_processes(const ProcessSettings& settings, const std::string& isa);
// Whether there are other processes, which repeat what this one's models do.
bool has_followers();
// In process 0, before a model is made of this one: the others open it too; nothing where this process is alone. Errors: invalid_argument for fewer ranks
// than processes, or for another numerics profile there; those of open_model in any process, which is named.
void open_beside(const ModelSource& source);

// This process's part of a model: over threads, or its ranks of all processes. The base's options say the layout.
std::unique_ptr<TrainedModel> make_trained_model_here(const TrainedBase& base, const TrainedSettings& settings);
// Of process 0, with the calls to the others, which have opened the model and follow.
std::unique_ptr<TrainedModel> make_led_model(const TrainedBase& base, const TrainedSettings& settings, ProcessMail& mail);

}  // namespace lockstep
