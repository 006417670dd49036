#include "runs/sft_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/seconds.h"
#include "base/signals.h"
#include "checkpoint/run_directory.h"
#include "observe/bounded_log.h"
#include "observe/metrics_log.h"
#include "observe/progress.h"
#include "runs/divergence.h"
#include "runs/run_settings.h"
#include "runs/sft_trainer.h"
#include "runs/sft_transcript.h"
#include "runs/training_state.h"

namespace lockstep {
namespace {

// What a resumed run may have others of, beside what no run's bits depend on: where data are is not what they are (data_digest).
const std::vector<std::string> kFreeOfSft = {"data", "eval", "eval_share", "eval_every", "patience", "epochs", "quiet", "export_to"};

std::int64_t parameters_of(const Manifest& manifest) {
  std::int64_t count = 0;
  for (const Parameter& parameter : manifest.parameters()) count += parameter.size();
  return count;
}

// The configuration with what follows from it and the data: a run that is resumed must come to the same.
Json resolved_config(const SftConfig& config, const SftPlan& plan, const SftSource& source) {
  Json json = config.resolved;
  json["steps"] = fmt::format("{}", plan.schedule.steps);
  json["batch"] = fmt::format("{}", plan.batch);
  json["learning_rate"] = fmt::format("{}", plan.schedule.peak);
  json["warmup"] = fmt::format("{}", plan.schedule.warmup);
  if (const std::string digest = source.digest(); !digest.empty()) json["data_digest"] = digest;
  json["format"] = "2";
  return json;
}

// The mean loss of a held-out token, by its weight. In pieces, so that memory is a step's.
double held_out_loss(SftTrainer& trainer, const std::vector<TrainSequence>& data, std::int64_t batch) {
  double loss = 0, weight = 0;
  for (std::size_t begin = 0; begin < data.size(); begin += static_cast<std::size_t>(batch)) {
    const std::size_t end = std::min(data.size(), begin + static_cast<std::size_t>(batch));
    const std::vector<TrainSequence> piece(data.begin() + static_cast<std::ptrdiff_t>(begin), data.begin() + static_cast<std::ptrdiff_t>(end));
    const std::vector<std::vector<float>> logprobs = trainer.score(piece);
    for (std::size_t s = 0; s < piece.size(); ++s)
      for (std::size_t i = 0; i < piece[s].weights.size(); ++i) {
        if (piece[s].weights[i] == 0) continue;
        loss -= static_cast<double>(piece[s].weights[i]) * static_cast<double>(logprobs[s][i]);
        weight += static_cast<double>(piece[s].weights[i]);
      }
  }
  return weight != 0 ? loss / weight : 0;
}

// A folder of the run with checkpoints of its own.
RunDirectory best_of(const RunDirectory& run) {
  std::error_code error;
  return RunDirectory::open(run.path(), "best", run.config(), {.resume = std::filesystem::is_directory(run.path() / "best", error), .resume_line = {}});
}

std::string described(const SftConfig& config, const SftPlan& plan, const SftSource& source, std::size_t held_out, std::int64_t parameters) {
  const Schedule& s = plan.schedule;
  const std::string data = source.size() == 0 ? std::string("an environment's problems")
                                              : fmt::format("{} sequences ({} epochs of them, {} held out)", source.size(),
                                                            fmt::format("{:.3g}", static_cast<double>(s.steps * plan.batch) / static_cast<double>(source.size())), held_out);
  const std::string what = config.adapter_rank > 0 ? fmt::format("an adapter of rank {} over {:.3g} million frozen weights", config.adapter_rank, static_cast<double>(parameters) / 1e6)
                                                   : fmt::format("all {:.3g} million weights", static_cast<double>(parameters) / 1e6);
  return fmt::format("{}: {} steps of {} sequences, learning rate {} ({}, {} steps of warm-up); trained: {}; each sequence stands alone in its batch (nothing is packed together, nothing is cut)",
                     data, s.steps, plan.batch, s.peak, s.kind, s.warmup, what);
}
}  // namespace

SftSummary run_sft(const SftConfig& config, const std::function<SftInput(const OpenedModel&)>& make_input, bool resume) {
  const Profile& profile = profile_by_name(config.runtime.profile);
  if (config.adapter_rank == 0) check_trainable(profile);
  OpenedModel opened = config.from_scratch ? open_untrained_model(config.runtime, config.init_seed, config.init_deviation) : open_model(config.runtime);
  const Model& model = *opened.loaded.model;
  const SftInput input = make_input(opened);
  const SftSource& source = *input.train;
  const std::int64_t parameters = parameters_of(model.manifest());
  SftPlan plan = plan_sft(config.asked, source.size(), parameters);
  const auto say = [&](const std::string& sentence) {
    if (config.say) config.say(sentence);
  };
  const std::unique_ptr<SftTrainer> trainer = make_sft_trainer(opened, config);

  RunDirectory run = RunDirectory::open(config.runs, config.name, resolved_config(config, plan, source), {resume, config.resume_line});
  if (resume) {
    const Json before = run.config();
    if (!config.asked.warmup && before.contains("format")) plan.schedule.warmup = std::stoll(before.at("warmup").get<std::string>());  // more steps do not move it
    check_resumed_settings(before, resolved_config(config, plan, source), {.free = kFreeOfSft, .only_known = !before.contains("format")});
  }
  if (config.on_start) config.on_start();
  Json position = resume ? trainer->restore(run) : Json::object();
  if (const std::string from = run.config().value("forked_from", ""); trainer->step() == 0 && !from.empty()) trainer->begin_from(from);
  MetricsLog metrics = MetricsLog::resume(run.metrics_file(), trainer->step());
  std::optional<BoundedLog> transcripts;
  if (opened.tokenizer && config.transcripts > 0) transcripts = BoundedLog::resume(run.transcripts_file(), trainer->step(), config.transcript_bytes);
  install_interrupt_handlers();

  SftSummary summary;
  const std::int64_t steps = plan.schedule.steps;
  summary.best_eval = position.value("best_eval", 0.0);
  summary.best_step = position.value("best_step", std::int64_t{-1});
  std::int64_t worse = position.value("worse", std::int64_t{0});
  summary.stopped_early = position.value("stopped_early", false);
  summary.was_finished = resume && (trainer->step() >= steps || summary.stopped_early);
  if (summary.was_finished)
    say(fmt::format("the run '{}' was {} at step {}: nothing is trained{}", run.path().string(), summary.stopped_early ? "stopped early" : "finished", trainer->step(),
                    summary.stopped_early ? "; --fork NAME begins another from here" : "; --steps with a larger number goes on"));
  else say(described(config, plan, source, input.held_out.size(), parameters));

  const auto begin = std::chrono::steady_clock::now();
  Progress progress({.label = "sft", .total = steps, .already_done = trainer->step(), .unit = "tokens", .quiet = config.quiet});
  const auto save = [&] {
    trainer->save(run, {{"next_step", trainer->step()}, {"seed", config.seed}, {"best_eval", summary.best_eval}, {"best_step", summary.best_step}, {"worse", worse},
                        {"stopped_early", summary.stopped_early}}, config.keep_last);
  };
  // After step trainer->step(): whether the run shall end.
  const std::int64_t eval_every = config.eval_every > 0 ? config.eval_every : std::max<std::int64_t>(1, source.size() / plan.batch);
  // Where a run may stop early, the weights that were best so far are kept beside its checkpoints: RUN/best, one checkpoint.
  std::optional<RunDirectory> best;
  if (!input.held_out.empty() && config.patience > 0 && !summary.was_finished) best.emplace(best_of(run));
  const auto evaluate = [&] {
    const double rate = trainer->step() > 0 ? learning_rate(plan.schedule, trainer->step() - 1) : 0.0;
    const double loss = named_divergence({.step = trainer->step(), .learning_rate = rate, .max_norm = config.max_norm, .run = run.path()}, [&] {
      const double mean = held_out_loss(*trainer, input.held_out, plan.batch);
      if (!std::isfinite(mean)) fail(ErrorCode::numeric, "the loss of the held-out sequences is {}", mean);
      return mean;
    });
    summary.eval_loss = loss;
    if (summary.best_step < 0 || loss < summary.best_eval) {
      summary.best_eval = loss;
      summary.best_step = trainer->step();
      worse = 0;
      if (best) trainer->save(*best, {{"eval_loss", loss}}, 1);
    } else {
      ++worse;
    }
    return loss;
  };
  if (!input.held_out.empty() && trainer->step() == 0) summary.eval_before = evaluate();
  std::int64_t saved_at = resume ? trainer->step() : -1;
  while (trainer->step() < steps && !summary.stopped_early && !interrupted()) {
    const std::int64_t step = trainer->step();
    const auto step_begin = std::chrono::steady_clock::now();
    IndexTraining index;
    index.dense_attention = step < config.sparse_from;
    index.index_loss = config.train_indexer && config.adapter_rank == 0 && model.has_indexer() && step >= config.index_from;
    AdamParameters adam;
    adam.learning_rate = learning_rate(plan.schedule, step);
    adam.beta1 = config.beta1;
    adam.beta2 = config.beta2;
    adam.eps = config.eps;
    adam.weight_decay = config.weight_decay;
    adam.max_norm = config.max_norm;
    adam.router_bias_rate = config.router_bias_rate;
    const std::vector<TrainSequence> batch = source.batch(step, plan.batch);
    const DivergenceSettings divergence{.step = step + 1, .learning_rate = adam.learning_rate, .max_norm = adam.max_norm, .run = run.path()};
    const auto [result, optim] = named_divergence(divergence, [&] {
      ForwardBackwardResult computed = trainer->forward_backward(batch, index);
      if (!std::isfinite(computed.loss)) fail(ErrorCode::numeric, "the loss is {}", computed.loss);
      const OptimResult moved = trainer->optim_step(adam);
      return std::pair(std::move(computed), moved);
    });
    summary.tokens += result.rows;
    summary.loss = result.loss;
    summary.index_loss = result.index_loss;
    if (transcripts && (step % config.transcripts_every == 0 || trainer->step() == steps))
      for (const auto& line : sft_transcripts(batch, result, *opened.tokenizer, trainer->step(), config.transcripts)) transcripts->append(line);
    const double seconds = seconds_since(step_begin);
    nlohmann::ordered_json row = {{"step", trainer->step()},
                                  {"loss", result.loss},
                                  {"index_loss", result.index_loss},
                                  {"gradient_norm", optim.gradient_norm},
                                  {"learning_rate", adam.learning_rate},
                                  {"dense_attention", index.dense_attention},
                                  {"tokens", result.rows},
                                  {"trained_tokens", result.scored},
                                  {"tokens_per_second", static_cast<double>(result.rows) / seconds}};
    const bool evaluates = !input.held_out.empty() && (trainer->step() % eval_every == 0 || trainer->step() == steps);
    if (evaluates) row["eval_loss"] = evaluate();
    metrics.append(row);
    if (evaluates && config.patience > 0 && worse >= config.patience && trainer->step() < steps) summary.stopped_early = true;
    progress.note(fmt::format("loss {:.4f}{}{}", result.loss, index.index_loss ? fmt::format(", index {:.4f}", result.index_loss) : "",
                              summary.eval_loss ? fmt::format(", held out {:.4f}", *summary.eval_loss) : ""));
    progress.advance(1, static_cast<double>(result.rows));
    if (config.checkpoint_every > 0 && trainer->step() % config.checkpoint_every == 0) save(), saved_at = trainer->step();
  }
  progress.finish();
  if (saved_at != trainer->step() || (summary.stopped_early && !summary.was_finished)) save();
  summary.steps = trainer->step();
  summary.seconds = seconds_since(begin);
  summary.interrupted = trainer->step() < steps && !summary.stopped_early;
  if (summary.interrupted) return summary;
  if (summary.stopped_early && !summary.was_finished)
    say(fmt::format("stopped after step {}: the loss of the held-out sequences was best after step {} ({:.4f}) and did not fall in {} evaluations since", summary.steps, summary.best_step,
                    summary.best_eval, worse));
  if (const std::filesystem::path weights = run.path() / "best/checkpoints" / checkpoint_name(summary.best_step); summary.stopped_early && std::filesystem::exists(weights)) {
    trainer->begin_from(weights);
    summary.eval_loss = summary.best_eval;
    say(fmt::format("exported are the weights after step {}", summary.best_step));
  } else if (summary.stopped_early) {  // begun by an earlier version, or resumed with another measure
    say(fmt::format("'{}' is not there, so exported are the weights after step {}", weights.string(), summary.steps));
  }
  summary.weights_sha256 = trainer->weights_sha256();
  const std::filesystem::path target = config.export_to.empty() ? run.export_folder() : std::filesystem::path(config.export_to);
  trainer->export_to(target, config.export_to.empty() ? Overwrite::yes : config.overwrite);
  summary.exported = target.string();
  return summary;
}

}  // namespace lockstep
