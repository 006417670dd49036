#include "trained/model_calls.h"

#include "base/log.h"
#include "parallel/follow_calls.h"
#include "train/image_record.h"

namespace lockstep {

void tell_gone(ProcessMail& mail, ModelCall call, std::uint64_t number) noexcept {
  try {
    tell_call(mail, call, [&](ByteWriter& out) { out.value(number); });
  } catch (const std::exception& e) {
    log_warning("the processes that follow were not told that a model is gone", {{"error", e.what()}});
  }
}

void put_source(ByteWriter& out, const ModelSource& source) {
  const RuntimeSettings& r = source.runtime;
  for (const std::string* text : {&r.model, &r.profile, &r.device, &r.backend, &r.isa, &r.ranks}) out.text(*text);
  out.value(r.threads);
  out.value(r.mla_norm_eps);
  out.value(r.context);
  out.value(r.new_mtp);
  for (const std::optional<bool>& choice : {r.mtp_shares_keys, r.mtp_normed_state}) out.value(choice.has_value()), out.value(choice.value_or(false));
  out.value(source.values);
  out.value(source.untrained);
  out.value(source.seed);
  out.value(source.deviation);
}

ModelSource taken_source(ByteReader& in) {
  ModelSource source;
  RuntimeSettings& r = source.runtime;
  for (std::string* text : {&r.model, &r.profile, &r.device, &r.backend, &r.isa, &r.ranks}) *text = in.text();
  r.threads = in.value<std::int64_t>();
  r.mla_norm_eps = in.value<double>();
  r.context = in.value<std::int64_t>();
  r.new_mtp = in.value<bool>();
  for (std::optional<bool>* choice : {&r.mtp_shares_keys, &r.mtp_normed_state}) {
    const bool chosen = in.value<bool>(), value = in.value<bool>();
    if (chosen) *choice = value;
  }
  source.values = in.value<bool>();
  source.untrained = in.value<bool>();
  source.seed = in.value<std::uint64_t>();
  source.deviation = in.value<double>();
  return source;
}

void put_options(ByteWriter& out, const TrainerOptions& options) {
  out.value(options.micro_batch);
  for (const bool flag : {options.checkpoint_activations, options.accumulate, options.mostly_one_call, options.share_prefixes, options.declared_prefixes,
                          options.train_indexer, options.indexer_alone, options.release_state})
    out.value(flag);
  out.value(options.page_size);
  out.value(options.row_tile);
  out.text(options.optimizer_folder);
  out.value(options.ranks);
}

TrainerOptions taken_options(ByteReader& in) {
  TrainerOptions options;
  options.micro_batch = in.value<std::int64_t>();
  for (bool* flag : {&options.checkpoint_activations, &options.accumulate, &options.mostly_one_call, &options.share_prefixes, &options.declared_prefixes,
                     &options.train_indexer, &options.indexer_alone, &options.release_state})
    *flag = in.value<bool>();
  options.page_size = in.value<std::int64_t>();
  options.row_tile = in.value<std::int64_t>();
  options.optimizer_folder = in.text();
  options.ranks = in.value<RankLayout>();
  return options;
}

void put_settings(ByteWriter& out, const TrainedSettings& settings) {
  out.value(settings.rank);
  out.value(settings.alpha);
  for (const bool flag : {settings.train_attn, settings.train_mlp, settings.train_unembed, settings.base_only, settings.seed.has_value()}) out.value(flag);
  out.value(settings.seed.value_or(0));
  out.text(settings.optimizer);
  out.text(settings.init_method);
}

TrainedSettings taken_settings(ByteReader& in) {
  TrainedSettings settings;
  bool has_seed = false;
  settings.rank = in.value<std::int64_t>();
  settings.alpha = in.value<double>();
  for (bool* flag : {&settings.train_attn, &settings.train_mlp, &settings.train_unembed, &settings.base_only, &has_seed}) *flag = in.value<bool>();
  const auto seed = in.value<std::uint64_t>();
  if (has_seed) settings.seed = seed;
  settings.optimizer = in.text();
  settings.init_method = in.text();
  return settings;
}

void put_state(ByteWriter& out, const TrainerState& state) {
  for (const WeightImages* images : {&state.masters, &state.first_moments, &state.second_moments}) put_images(out, *images);
  out.value(state.step);
}

TrainerState taken_state(ByteReader& in) {
  TrainerState state;
  for (WeightImages* images : {&state.masters, &state.first_moments, &state.second_moments}) *images = taken_images(in);
  state.step = in.value<std::int64_t>();
  return state;
}

}  // namespace lockstep
