#include "jobs/preference_job.h"

#include "base/error.h"

namespace lockstep {
namespace {

PreferenceInput read_preference_input(const PreferenceJob& job, const OpenedModel& opened) {
  const bool pairs = preference_row(job.config.preference.loss).pairs;
  const ChatData reader = open_chat_data(job.config.runtime.model, opened.tokenizer, job.end_token, job.chat_template, job.reading);
  const auto read = [&](const std::string& file) {
    return read_preference_file(file, reader, pairs, opened.model->facts().vocabulary, opened.runtime->max_positions);
  };
  PreferenceInput input;
  input.train = read(job.data);
  if (!job.eval.empty()) input.held_out = read(job.eval);
  const double share = job.eval_share ? *job.eval_share : job.eval.empty() && input.train.size() >= 20 ? 0.1 : 0.0;
  if (share == 0) return input;
  std::vector<bool> held(input.train.size(), false);
  for (const std::size_t place : held_out_places(input.train.size(), share, job.config.seed)) held[place] = true;
  std::vector<PreferenceItem> rest;
  for (std::size_t i = 0; i < input.train.size(); ++i) (held[i] ? input.held_out : rest).push_back(std::move(input.train[i]));
  input.train = std::move(rest);
  return input;
}

}  // namespace

PreferenceSummary run_preference_job(const PreferenceJob& job) {
  return run_preference(job.config, [&](const OpenedModel& opened) { return read_preference_input(job, opened); });
}

}  // namespace lockstep
