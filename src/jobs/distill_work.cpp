#include "jobs/distill_work.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "base/choice.h"
#include "base/error.h"
#include "base/log.h"
#include "base/seconds.h"
#include "losses/distillation.h"
#include "rl/rollout.h"
#include "runs/adam_settings.h"
#include "runs/difference_folder.h"
#include "runs/divergence.h"
#include "runs/policy_loss.h"

namespace lockstep {

std::vector<std::string> distill_places() { return {"vocabulary", "top", "sampled"}; }

void check(const DistillSettings& s) {
  const auto in_range = [](std::string_view name, auto value, auto low, auto high) {
    if (!(value >= low && value <= high)) fail(ErrorCode::invalid_argument, "{} is {}, allowed is {} to {}", name, value, low, high);
  };
  in_range("steps", s.steps, std::int64_t{1}, std::int64_t{1'000'000'000});
  in_range("prompts", s.prompts, std::int64_t{1}, std::int64_t{1} << 20);
  in_range("rollouts", s.rollouts, std::int64_t{1}, std::int64_t{1} << 16);
  in_range("max_tokens", s.max_tokens, std::int64_t{1}, std::int64_t{1} << 20);
  if (!(s.temperature > 0 && s.temperature <= 100)) fail(ErrorCode::invalid_argument, "temperature is {}, allowed is above 0 to 100", s.temperature);
  const Divergence kind = divergence_by_name(s.divergence);
  check_choice("over", s.over, distill_places());
  in_range("teacher_top_k", s.teacher_top_k, std::int64_t{1}, std::int64_t{SamplingParameters::kMaxTopLogprobs});
  if (s.over == "sampled" && kind != Divergence::reverse)
    fail(ErrorCode::invalid_argument, "divergence is '{}' over sampled tokens, which are the student's; allowed is reverse", s.divergence);
  if (s.over == "sampled" && s.temperature != 1)
    fail(ErrorCode::invalid_argument, "temperature is {} over sampled tokens, but the divergence is that of the distribution at 1; allowed is 1",
         s.temperature);
  in_range("warmup", s.warmup, std::int64_t{0}, s.steps);
}

DistillWork::DistillWork(RlStack& stack, Teachers& teachers, DistillPrompts prompts, const DistillSettings& settings, StopToken stop)
    : stack_(stack), traffic_({&stack.trainer()}), teachers_(teachers), prompts_(std::move(prompts)), settings_(settings), stop_(std::move(stop)) {
  check(settings);
  for (const TeacherSettings& teacher : teachers.settings())
    far_.push_back(teacher.is_far() ? std::make_unique<const FarTeacher>(teacher, stack.tokenizer(), stop_) : nullptr);
  const std::int64_t vocabulary = stack.model().facts().vocabulary;
  in_head_ = settings.over == "vocabulary" && vocabulary > kMostToldTokens;
  const RankLayout& ranks = stack.opened().ranks;
  if (in_head_ && ranks.size() > 1 && stack.opened().runtime->backend.device().kind() == BackendKind::cuda)
    fail(
        ErrorCode::unsupported,
        "over is 'vocabulary' of {} tokens, which is computed in the head with a teacher's beside it, and ranks is '{}' on GPUs; allowed are one GPU, ranks on "
        "the CPU, or over top or sampled",
        vocabulary, ranks.text());
  if (settings.over == "top" && settings.teacher_top_k > vocabulary)
    fail(ErrorCode::invalid_argument, "teacher_top_k is {}, allowed is at most {}, the size of the vocabulary", settings.teacher_top_k, vocabulary);
}

void DistillWork::restore(const RunDirectory& run) { stack_.trainer().load(run); }

void DistillWork::save(const RunDirectory& run, std::int64_t keep_last) { stack_.trainer().save(run, {{"next_step", step()}}, keep_last); }

void DistillWork::finish_save() { stack_.trainer().checkpoints().finish(); }

std::vector<DistillWork::Written> DistillWork::write(std::int64_t number) {
  const std::vector<DistillPrompt> prompts = prompts_(number, settings_.prompts);
  std::vector<SampleRequest> requests;
  for (std::size_t i = 0; i < prompts.size(); ++i)
    for (std::int64_t j = 0; j < settings_.rollouts; ++j)
      requests.push_back(
          {.prompt = prompts[i].tokens,
           .temperature = static_cast<float>(settings_.temperature),
           .seed = derived_seed(settings_.seed, SeedUse::rollouts, static_cast<std::uint64_t>(number) * static_cast<std::uint64_t>(settings_.prompts) + i),
           .sample_index = static_cast<std::int32_t>(j),
           .max_tokens = static_cast<std::int32_t>(settings_.max_tokens),
           .stop_tokens = stack_.rollouts().end_tokens()});
  std::vector<SampleResult> results = stack_.rollouts().sample(requests);
  std::vector<Written> written;
  for (std::size_t k = 0; k < results.size(); ++k) {
    SampleResult& result = results[k];
    if (result.finish == SampleFinish::failed) fail(ErrorCode::numeric, "a completion failed: {}", result.error);
    if (result.mixed_versions || result.weights_version != stack_.trainer().weights_version())
      fail(ErrorCode::internal, "a completion is of weights version {}, the trainer is at {}", result.weights_version, stack_.trainer().weights_version());
    Written& one = written.emplace_back();
    one.tokens = requests[k].prompt;
    one.first = one.tokens.size();
    one.tokens.insert(one.tokens.end(), result.tokens.begin(), result.tokens.end());
    one.logprobs = settings_.over == "sampled" ? std::move(result.sampling_logprobs) : std::move(result.raw_logprobs);
    one.domain = prompts[k / static_cast<std::size_t>(settings_.rollouts)].domain;
    one.place = k;
  }
  return written;
}

std::vector<DistillWork::Lesson> DistillWork::lessons_of(const std::vector<Written>& written) const {
  std::vector<Lesson> lessons;
  for (std::size_t w = 0; w < written.size(); ++w) {
    const std::vector<std::size_t> own = teachers_of(teachers_.settings(), written[w].domain);
    double all = 0;
    for (const std::size_t t : own) all += teachers_.settings()[t].weight;
    for (const std::size_t t : own) lessons.push_back({.written = w, .teacher = t, .share = teachers_.settings()[t].weight / all, .answer = {}});
  }
  return lessons;
}

std::vector<DistillWork::Lesson> DistillWork::ask(const std::vector<Written>& written) {
  const std::int64_t tokens = settings_.over == "sampled"      ? Teachers::kSampled
                              : settings_.over == "vocabulary" ? Teachers::kVocabulary
                                                               : settings_.teacher_top_k;
  std::vector<Lesson> lessons = lessons_of(written);
  for (const std::vector<std::size_t>& asked : teachers_.together()) {
    std::vector<TeacherQuestion> questions;
    std::vector<Lesson*> own;
    for (Lesson& lesson : lessons) {
      if (std::find(asked.begin(), asked.end(), lesson.teacher) == asked.end()) continue;
      own.push_back(&lesson);
      questions.push_back({lesson.teacher, {written[lesson.written].tokens, written[lesson.written].first}});
    }
    if (questions.empty()) continue;
    if (far_[asked[0]]) {  // alone
      std::vector<TeacherText> texts;
      for (TeacherQuestion& question : questions) texts.push_back(std::move(question.text));
      std::vector<FarAnswer> answers = ask_far(asked[0], texts);
      for (std::size_t i = 0; i < own.size(); ++i) {
        if (answers[i].failure.empty()) own[i]->answer = std::move(answers[i].answer);
        else own[i]->share = 0;
      }
      continue;
    }
    std::vector<TeacherAnswer> answers = teachers_.ask(questions, tokens);
    for (std::size_t i = 0; i < own.size(); ++i) own[i]->answer = std::move(answers[i]);
  }
  std::erase_if(lessons, [](const Lesson& lesson) { return lesson.share == 0; });
  return lessons;
}

std::vector<FarAnswer> DistillWork::ask_far(std::size_t teacher, const std::vector<TeacherText>& texts) {
  const TeacherSettings& settings = teachers_.settings()[teacher];
  std::vector<FarAnswer> answers = far_[teacher]->ask(texts);
  for (std::int64_t round = 1;; ++round) {
    std::vector<std::size_t> missing, waits;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (answers[i].failure.empty()) continue;
      missing.push_back(i);
      if (settings.failed == "wait" && !answers[i].for_good) waits.push_back(i);
    }
    if (missing.empty()) return answers;
    log_warning("a teacher gave no answer",
                {{"teacher", settings.name}, {"completions", missing.size()}, {"of", texts.size()}, {"error", answers[missing[0]].failure}});
    if (waits.empty()) {
      unanswered_ += std::ssize(missing);
      if (missing.size() == texts.size())
        fail(ErrorCode::io, "teacher '{}' answered for none of {} completions: {}", settings.name, texts.size(), answers[0].failure);
      return answers;
    }
    for (std::int64_t waited = 0; waited < std::min<std::int64_t>(10 * round, 300); ++waited) {  // up to half a minute
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      stop_.throw_if_stopped();
    }
    std::vector<TeacherText> again;
    for (const std::size_t i : waits) again.push_back(texts[i]);
    std::vector<FarAnswer> more = far_[teacher]->ask(again);
    for (std::size_t k = 0; k < waits.size(); ++k) answers[waits[k]] = std::move(more[k]);
  }
}

void DistillWork::compare(const Written& one, const std::vector<float>& trained) {
  for (std::size_t t = 0; t < trained.size(); ++t) {
    totals_.kl.add(trained[t], one.logprobs[t], 0, 0);
    if (std::bit_cast<std::uint32_t>(trained[t]) != std::bit_cast<std::uint32_t>(one.logprobs[t])) refuse_difference(one, trained, t);
  }
}

void DistillWork::refuse_difference(const Written& one, const std::vector<float>& trained, std::size_t token) {
  stack_.trainer().abandon_gradients();
  PolicyDatum datum;  // both numbers are of the distribution at temperature 1, whatever the student wrote at
  datum.tokens.assign(one.tokens.begin(), one.tokens.end() - 1);
  datum.targets.assign(one.tokens.begin() + 1, one.tokens.end());
  datum.weights.assign(datum.targets.size(), 0.0f);
  datum.old_logprobs.assign(datum.targets.size(), 0.0f);
  std::vector<float> logprobs(datum.targets.size(), 0.0f);
  for (std::size_t t = 0; t < trained.size(); ++t) {
    const std::size_t row = one.first - 1 + t;
    datum.weights[row] = 1;
    datum.old_logprobs[row] = one.logprobs[t];
    logprobs[row] = trained[t];
  }
  const std::string left =
      differences_.empty() ? std::string() : leave_and_tell(stack_, {.datum = datum, .logprobs = logprobs, .step = step() + 1}, differences_);
  fail(ErrorCode::internal,
       "step {}: token {} of completion {} has log-probability {} where it was sampled (bits {:#010x}) and {} in training (bits {:#010x}), under the same "
       "weights; nothing was learned from this step. Please report it{}",
       step() + 1, token, one.place, one.logprobs[token], std::bit_cast<std::uint32_t>(one.logprobs[token]), trained[token],
       std::bit_cast<std::uint32_t>(trained[token]), left);
}

// A cross-entropy over the teacher's tokens whose weights are the divergence's slopes: the forward is kept for it (train/kept_passes.h).
double DistillWork::learn_distributions(const std::vector<Written>& written, const std::vector<Lesson>& lessons, std::int64_t tokens) {
  const std::int64_t vocabulary = stack_.model().facts().vocabulary;
  std::vector<TrainSequence> data;
  std::vector<std::vector<float>> said;
  for (const Lesson& lesson : lessons) {
    const Written& one = written[lesson.written];
    TrainSequence& sequence = data.emplace_back();
    sequence.tokens.assign(one.tokens.begin(), one.tokens.end() - 1);
    sequence.targets_per_row = lesson.answer.per_row;
    const std::size_t masked = (one.first - 1) * static_cast<std::size_t>(lesson.answer.per_row);
    sequence.targets.assign(masked, -1);
    sequence.targets.insert(sequence.targets.end(), lesson.answer.tokens.begin(), lesson.answer.tokens.end());
    sequence.weights.assign(masked, 0.0f);
    sequence.weights.resize(sequence.targets.size(), 1.0f);
    said.emplace_back(masked, 0.0f).insert(said.back().end(), lesson.answer.logprobs.begin(), lesson.answer.logprobs.end());
  }
  const std::vector<std::vector<float>> logprobs = stack_.trainer().score(data);
  double loss = 0;
  for (std::size_t i = 0; i < lessons.size(); ++i) {
    const Lesson& lesson = lessons[i];
    const Written& one = written[lesson.written];
    if (settings_.over == "vocabulary") {
      std::vector<float> trained;
      for (std::size_t t = 0; t < one.logprobs.size(); ++t)
        trained.push_back(logprobs[i][(one.first - 1 + t) * static_cast<std::size_t>(vocabulary) + static_cast<std::size_t>(one.tokens[one.first + t])]);
      compare(one, trained);
    }
    const DistillationSettings divergence{.kind = divergence_by_name(settings_.divergence), .rest = has_rest(data[i], vocabulary)};
    const double sum = weigh_by_divergence(divergence, data[i], logprobs[i], said[i], lesson.share / static_cast<double>(tokens));
    loss += lesson.share * sum;
    sums_[lesson.teacher] += sum;
    counts_[lesson.teacher] += static_cast<double>(one.logprobs.size());
  }
  if (!std::isfinite(loss)) fail(ErrorCode::numeric, "the divergence is {}", loss);
  LossOptions sum;
  sum.averaging = LossAveraging::sum;
  stack_.trainer().forward_backward(data, sum);
  return loss / static_cast<double>(tokens);
}

// Each sampled token's advantage is the teachers' log-probability minus the student's: a sampled gradient of the reverse divergence.
double DistillWork::learn_sampled(const std::vector<Written>& written, const std::vector<Lesson>& lessons, std::int64_t tokens) {
  std::vector<PolicyDatum> data;
  std::vector<std::vector<double>> advantages(written.size()), shares(written.size());
  for (std::size_t w = 0; w < written.size(); ++w) {
    advantages[w].assign(written[w].logprobs.size(), 0.0);
    shares[w] = advantages[w];
  }
  double loss = 0;
  for (const Lesson& lesson : lessons) {
    const Written& one = written[lesson.written];
    const std::vector<std::int32_t>& group = lesson.answer.group;
    for (std::size_t t = 0, end; t < one.logprobs.size(); t = end) {
      end = t + 1;
      if (!group.empty() && group[t] < 0) continue;
      double sampled = static_cast<double>(one.logprobs[t]);
      for (; !group.empty() && end < group.size() && group[end] == group[t]; ++end) sampled += static_cast<double>(one.logprobs[end]);
      // A run of tokens that was judged together is one action: each of its tokens has the whole advantage.
      const double above = static_cast<double>(lesson.answer.logprobs[t]) - sampled;
      for (std::size_t k = t; k < end; ++k) {
        advantages[lesson.written][k] += lesson.share * above;
        shares[lesson.written][k] += lesson.share;
      }
      loss -= lesson.share * above;
      sums_[lesson.teacher] -= above;
      counts_[lesson.teacher] += static_cast<double>(end - t);
    }
  }
  const bool far = any_far();
  for (std::size_t w = 0; w < written.size(); ++w) {
    const Written& one = written[w];
    PolicyDatum& datum = data.emplace_back();
    datum.tokens.assign(one.tokens.begin(), one.tokens.end() - 1);
    datum.targets.assign(one.tokens.begin() + 1, one.tokens.end());
    datum.weights.assign(datum.targets.size(), 0.0f);
    datum.advantages.assign(datum.targets.size(), 0.0f);
    datum.old_logprobs.assign(datum.targets.size(), 0.0f);
    std::fill(datum.targets.begin(), datum.targets.begin() + static_cast<std::ptrdiff_t>(one.first - 1), -1);
    for (std::size_t t = 0; t < one.logprobs.size(); ++t) {
      const std::size_t row = one.first - 1 + t;
      const double share = shares[w][t];
      unjudged_ += share == 0;
      datum.weights[row] = share > 0 ? 1.0f : 0.0f;
      // Where a teacher had nothing to say, the others' shares are of what is left.
      datum.advantages[row] = static_cast<float>(far && share > 0 ? advantages[w][t] / share : advantages[w][t]);
      datum.old_logprobs[row] = one.logprobs[t];
    }
  }
  const PolicyResult result =
      stack_.trainer().forward_backward(data, PolicyLoss{.name = "importance_sampling", .averaging = "token_mean", .normaliser = static_cast<double>(tokens)});
  for (std::size_t w = 0; w < written.size(); ++w)
    compare(written[w], {result.logprobs[w].begin() + static_cast<std::ptrdiff_t>(written[w].first - 1), result.logprobs[w].end()});
  return loss / static_cast<double>(tokens);
}

RunStep DistillWork::take_step() {
  const std::int64_t number = step();
  const AdamParameters adam = adam_parameters(
      settings_, learning_rate({.kind = settings_.schedule, .peak = settings_.learning_rate, .warmup = settings_.warmup, .steps = settings_.steps}, number));
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Written> written = write(number);
  const double rollout_seconds = seconds_since(begin);
  std::int64_t tokens = 0;
  for (const Written& one : written) tokens += std::ssize(one.logprobs);
  unanswered_ = unjudged_ = 0;
  const std::vector<Lesson> lessons = in_head_ ? lessons_of(written) : ask(written);
  const double asked = seconds_since(begin);
  teacher_seconds_ = asked - rollout_seconds;
  sums_.assign(teachers_.settings().size(), 0);
  counts_ = sums_;
  double loss = 0;
  const double norm = named_divergence({.step = number + 1, .learning_rate = adam.learning_rate, .max_norm = adam.max_norm, .run = {}}, [&] {
    loss = settings_.over == "sampled" ? learn_sampled(written, lessons, tokens)
           : in_head_                  ? learn_in_head(written, lessons, tokens)
                                       : learn_distributions(written, lessons, tokens);
    return stack_.trainer().take_step(adam).gradient_norm;
  });
  RunStep taken;
  taken.metrics = {{"step", step()},
                   {"loss", loss},
                   {"gradient_norm", norm},
                   {"learning_rate", adam.learning_rate},
                   {"completions", written.size()},
                   {"tokens", tokens},
                   {"different_bits", totals_.kl.different_bits},
                   {"rollout_seconds", rollout_seconds},
                   {"teacher_seconds", teacher_seconds_},
                   {"train_seconds", seconds_since(begin) - rollout_seconds - teacher_seconds_}};
  if (any_far()) {
    taken.metrics["unanswered"] = unanswered_;
    taken.metrics["unjudged_tokens"] = unjudged_;
  }
  traffic_.tell(taken.metrics);
  totals_.divergences.clear();
  for (std::size_t t = 0; t < sums_.size(); ++t) {
    totals_.divergences.push_back(counts_[t] > 0 ? sums_[t] / counts_[t] : std::numeric_limits<double>::quiet_NaN());
    if (counts_[t] > 0) taken.metrics["divergence_" + teachers_.settings()[t].name] = totals_.divergences[t];
  }
  ++totals_.steps;
  totals_.tokens += tokens;
  taken.tokens = tokens;
  taken.note = fmt::format("divergence {:.4f}", loss);
  return taken;
}

}  // namespace lockstep
