#include "train/losses.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>

#include "base/choice.h"
#include "base/error.h"
#include "train/value_loss.h"

namespace lockstep {

namespace {
constexpr float kNoBound = std::numeric_limits<float>::infinity();
enum OptionGroup : unsigned {
  kAnyLoss = 1,
  kPolicyLoss = 2,
  kClip = 4,
  kRatio = 8,
  kDual = 16,
  kDro = 32,
  kDppo = 64,
  kSapo = 128,
  kSequence = 256,
  kValue = 512
};

struct OptionRow {
  std::string_view name;
  unsigned groups;
  std::function<void(LossOptions&, const LossValue&)> set;
};

[[noreturn]] void wrong_value(const LossValue& value, std::string_view allowed) {
  const std::string shown = std::visit(
      [](const auto& v) -> std::string {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::string>) return "'" + v + "'";
        else return fmt::format("{}", v);
      },
      value);
  fail(ErrorCode::invalid_argument, "it is {}, allowed is {}", shown, allowed);
}

double number_of(const LossValue& value, double low, double high, std::string_view allowed) {
  double x = std::numeric_limits<double>::quiet_NaN();
  if (const auto* number = std::get_if<double>(&value)) x = *number;
  if (const auto* text = std::get_if<std::string>(&value)) {
    double read = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), read);
    if (error == std::errc() && end == text->data() + text->size()) x = read;
  }
  if (!(x >= low && x <= high)) wrong_value(value, allowed);
  return x;
}

bool truth_of(const LossValue& value) {
  if (const auto* truth = std::get_if<bool>(&value)) return *truth;
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (*text == "true") return true;
    if (*text == "false") return false;
  }
  wrong_value(value, "true or false");
}

template <class T>
T choice_of(const LossValue& value, const std::vector<std::pair<std::string, T>>& choices) {
  std::vector<std::string> names;
  const auto* text = std::get_if<std::string>(&value);
  for (const auto& [name, choice] : choices) {
    if (text && *text == name) return choice;
    names.push_back(name);
  }
  wrong_value(value, fmt::format("{}{}", fmt::join(names, ", "), text ? did_you_mean(*text, names) : ""));
}

auto number_option(float LossParameters::*member, double low, double high, std::string_view allowed) {
  return [=](LossOptions& loss, const LossValue& v) { loss.parameters.*member = static_cast<float>(number_of(v, low, high, allowed)); };
}

constexpr double kMost = 1e6;
constexpr std::string_view kFromZero = "a number from 0 to 1e6", kAboveZero = "a number above 0, to 1e6";
constexpr double kLeast = 1e-6;

const std::vector<OptionRow>& option_rows() {
  static const std::vector<OptionRow> rows = {
      {"averaging", kAnyLoss, [](LossOptions& loss, const LossValue& v) { loss.averaging = choice_of<LossAveraging>(v, loss_averagings()); }},
      {"length_norm", kAnyLoss, [](LossOptions& loss, const LossValue& v) { loss.length_norm = number_of(v, kLeast, 1e9, "a number above 0, to 1e9"); }},
      {"normaliser", kAnyLoss, [](LossOptions& loss, const LossValue& v) { loss.normaliser = number_of(v, kLeast, 1e12, "a number above 0, to 1e12"); }},
      {"value_clip", kValue, number_option(&LossParameters::clip_high, 0, kMost, kFromZero)},
      {"clip_low_threshold", kClip, number_option(&LossParameters::clip_low, 0, kMost, kFromZero)},
      {"clip_high_threshold", kClip, number_option(&LossParameters::clip_high, 0, kMost, kFromZero)},
      {"ratio_log_cap", kRatio,
       [](LossOptions& loss, const LossValue& v) {
         loss.parameters.log_ratio_high = static_cast<float>(number_of(v, kLeast, 80, "a number above 0, to 80"));
         loss.parameters.log_ratio_low = 0.0f - loss.parameters.log_ratio_high;
       }},
      {"seq_ratio_log_cap", kSequence,
       [](LossOptions& loss, const LossValue& v) { loss.parameters.log_ratio_high = static_cast<float>(number_of(v, kLeast, 80, "a number above 0, to 80")); }},
      {"ratio_level", kRatio,
       [](LossOptions& loss, const LossValue& v) {
         loss.ratio_level = choice_of<RatioLevel>(
             v, {{"token", RatioLevel::token}, {"sequence", RatioLevel::sequence_mean}, {"sequence_product", RatioLevel::sequence_product}});
       }},
      {"eps_clip_c", kDual, number_option(&LossParameters::dual_clip, 1, kMost, "a number from 1 to 1e6")},
      {"beta", kDro, number_option(&LossParameters::beta, 0, kMost, kFromZero)},
      {"gate_zero_advantage", kDro, [](LossOptions& loss, const LossValue& v) { loss.parameters.zero_advantage_is_nothing = truth_of(v); }},
      {"trust_low_threshold", kDppo, number_option(&LossParameters::trust_low, 0, kMost, kFromZero)},
      {"trust_high_threshold", kDppo, number_option(&LossParameters::trust_high, 0, kMost, kFromZero)},
      {"trust_distance", kDppo,
       [](LossOptions& loss, const LossValue& v) {
         loss.kind = choice_of<LossKind>(v, {{"tv", LossKind::dppo_tv}, {"kl", LossKind::dppo_kl}});
       }},
      {"ratio_cap", kDppo, number_option(&LossParameters::ratio_cap, kLeast, kMost, kAboveZero)},
      {"tau_positive", kSapo, number_option(&LossParameters::tau_positive, kLeast, kMost, kAboveZero)},
      {"tau_negative", kSapo, number_option(&LossParameters::tau_negative, kLeast, kMost, kAboveZero)},
      {"anchor", kPolicyLoss,
       [](LossOptions& loss, const LossValue& v) {
         loss.parameters.anchor =
             choice_of<RatioAnchor>(v, {{"sampler", RatioAnchor::sampler}, {"proximal", RatioAnchor::proximal}, {"current", RatioAnchor::current}});
       }},
      {"kl", kPolicyLoss,
       [](LossOptions& loss, const LossValue& v) {
         loss.parameters.kl = choice_of<KlEstimator>(v, {{"k1", KlEstimator::k1},
                                                         {"k2", KlEstimator::k2},
                                                         {"k3", KlEstimator::k3},
                                                         {"unbiased", KlEstimator::unbiased},
                                                         {"k3_plus", KlEstimator::k3_plus}});
       }},
      {"kl_coefficient", kPolicyLoss, number_option(&LossParameters::kl_coefficient, 0, kMost, kFromZero)},
      {"entropy_coefficient", kPolicyLoss, number_option(&LossParameters::entropy_coefficient, -kMost, kMost, "a number from -1e6 to 1e6")},
      {"correction", kPolicyLoss,
       [](LossOptions& loss, const LossValue& v) {
         loss.parameters.correction = choice_of<Correction>(v, {{"none", Correction::none},
                                                                {"tis", Correction::truncate},
                                                                {"clip", Correction::clip},
                                                                {"icepop", Correction::icepop},
                                                                {"mask", Correction::mask}});
       }},
      {"correction_low", kPolicyLoss, number_option(&LossParameters::correction_low, 0, kMost, kFromZero)},
      {"correction_high", kPolicyLoss, number_option(&LossParameters::correction_high, kLeast, kMost, kAboveZero)},
      {"correction_level", kPolicyLoss,
       [](LossOptions& loss, const LossValue& v) {
         loss.correction_level =
             choice_of<RatioLevel>(v, {{"token", RatioLevel::token}, {"geometric", RatioLevel::sequence_mean}, {"sequence", RatioLevel::sequence_product}});
       }},
  };
  return rows;
}

constexpr unsigned kPlain = kAnyLoss | kPolicyLoss;
}  // namespace

const std::vector<LossRow>& loss_rows() {
  // name, formula, kind, sequence ratio, clip bounds, bounds of the log-ratio, options
  static const std::vector<LossRow> rows = {
      {"cross_entropy", "-w lp", LossKind::cross_entropy, false, 0, 0, -kNoBound, kNoBound, kAnyLoss},
      {"importance_sampling", "-w r A", LossKind::importance_sampling, false, 0, 0, -kNoBound, kNoBound, kPlain | kRatio},
      {"ppo", "-w min(r A, clip(r) A)", LossKind::policy, false, 0.8f, 1.2f, -20, 20, kPlain | kRatio | kClip | kDual},
      {"grpo", "-w min(r A, clip(r) A), with a KL term", LossKind::policy, false, 0.8f, 1.2f, -20, 20, kPlain | kRatio | kClip | kDual},
      {"dapo", "-w min(r A, clip(r) A), clipped higher above", LossKind::policy, false, 0.8f, 1.28f, -20, 20, kPlain | kRatio | kClip | kDual},
      {"gspo", "-w min(s A, clip(s) A), s of the sequence", LossKind::policy, true, 0.8f, 1.2f, -kNoBound, 10, kPlain | kClip | kDual | kSequence},
      {"cispo", "-w sg(clip(r)) A lp", LossKind::cispo, false, 0.8f, 1.28f, -20, 20, kPlain | kRatio | kClip},
      {"dro", "-w (A lp - beta/2 (lp - q)^2)", LossKind::dro, false, 0, 0, -20, 20, kPlain | kDro},
      {"reinforce", "-w A lp", LossKind::reinforce, false, 0, 0, -20, 20, kPlain},
      {"dppo", "-w sg(min(r, cap)) A lp inside a trust region", LossKind::dppo_tv, false, 0, 0, -20, 20, kPlain | kDppo},
      {"sapo", "-w (4 / tau) sigmoid(tau (r - 1)) A", LossKind::sapo, false, 0, 0, -20, 20, kPlain | kRatio | kSapo},
  };
  return rows;
}

std::vector<std::string> loss_names() {
  std::vector<std::string> names;
  for (const LossRow& row : loss_rows()) names.emplace_back(row.name);
  return names;
}

const std::vector<std::pair<std::string, LossAveraging>>& loss_averagings() {
  static const std::vector<std::pair<std::string, LossAveraging>> all = {{"token_mean", LossAveraging::token_mean},
                                                                         {"sequence_token_mean", LossAveraging::sequence_token_mean},
                                                                         {"sequence_token_sum", LossAveraging::sequence_token_sum},
                                                                         {"sequence_token_sum_norm", LossAveraging::sequence_token_sum_norm},
                                                                         {"sum", LossAveraging::sum}};
  return all;
}

std::vector<std::string> loss_option_names(const LossRow& row) {
  std::vector<std::string> names;
  for (const OptionRow& option : option_rows())
    if (option.groups & row.options) names.emplace_back(option.name);
  std::sort(names.begin(), names.end());
  return names;
}

LossConfig read_loss_config(const std::vector<std::string>& pairs) {
  LossConfig config;
  for (const std::string& pair : pairs) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0) fail(ErrorCode::invalid_argument, "an option of the loss is '{}', allowed is KEY=VALUE", pair);
    config.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
  }
  return config;
}

namespace {
void apply_options(LossOptions& loss, std::string_view name, unsigned groups, const std::vector<std::string>& names, const LossConfig& config) {
  for (const auto& [key, value] : config) {
    const auto option =
        std::find_if(option_rows().begin(), option_rows().end(), [&, &key = key](const OptionRow& o) { return o.name == key && (o.groups & groups); });
    if (option == option_rows().end()) fail(ErrorCode::invalid_argument, "'{}' is no option of the loss {}, {}", key, name, allowed_are(key, names));
    with_context(fmt::format("reading the option {} of the loss {}", key, name), [&loss, &option, &value = value] { option->set(loss, value); });
  }
}
}  // namespace

LossOptions loss_by_name(std::string_view name, const LossConfig& config) {
  const auto row = std::find_if(loss_rows().begin(), loss_rows().end(), [&](const LossRow& r) { return r.name == name; });
  if (row == loss_rows().end()) fail_choice("the loss", name, loss_names());
  LossOptions loss;
  loss.kind = row->kind;
  loss.averaging = LossAveraging::sum;
  loss.ratio_level = row->sequence_ratio ? RatioLevel::sequence_mean : RatioLevel::token;
  loss.parameters.clip_low = row->clip_low;
  loss.parameters.clip_high = row->clip_high;
  loss.parameters.log_ratio_low = row->log_ratio_low;
  loss.parameters.log_ratio_high = row->log_ratio_high;
  loss.parameters.kl = KlEstimator::k3;  // its coefficient is 0
  apply_options(loss, name, row->options, loss_option_names(*row), config);
  check_loss_options(loss);
  return loss;
}

LossOptions value_loss(const LossConfig& config) {
  LossOptions loss;
  loss.kind = LossKind::value;
  loss.averaging = LossAveraging::sum;
  loss.parameters.clip_high = 0;
  apply_options(loss, kValueLossName, kAnyLoss | kValue, {"averaging", "length_norm", "normaliser", "value_clip"}, config);
  check_loss_options(loss);
  return loss;
}

namespace {
bool corrects(const LossOptions& loss) { return loss.parameters.correction != Correction::none; }
bool regularises(const LossOptions& loss) { return loss.parameters.kl != KlEstimator::none && loss.parameters.kl_coefficient != 0; }
}  // namespace

void check_loss_options(const LossOptions& loss) {
  const LossParameters& p = loss.parameters;
  const auto wrong = [](const std::string& what) { fail(ErrorCode::invalid_argument, "{}", what); };
  if (!is_policy(loss.kind)) {
    if (const float clip = value_clip(loss); loss.kind == LossKind::value && !(clip >= 0 && std::isfinite(clip)))
      wrong(fmt::format("value_clip is {}, allowed are finite numbers from 0", clip));
    if (loss.averaging == LossAveraging::sequence_token_sum_norm && !(loss.length_norm > 0))
      wrong("length_norm is missing: averaging sequence_token_sum_norm divides by it");
    return;
  }
  for (const auto& [name, value] : {std::pair{"clip_low_threshold", p.clip_low},
                                    {"clip_high_threshold", p.clip_high},
                                    {"beta", p.beta},
                                    {"eps_clip_c", p.dual_clip},
                                    {"kl_coefficient", p.kl_coefficient},
                                    {"entropy_coefficient", p.entropy_coefficient},
                                    {"correction_low", p.correction_low},
                                    {"correction_high", p.correction_high}})
    if (!std::isfinite(value)) wrong(fmt::format("{} is {}, allowed are finite numbers", name, value));
  if (p.clip_low > p.clip_high) wrong(fmt::format("clip_low_threshold is {}, allowed is at most clip_high_threshold, which is {}", p.clip_low, p.clip_high));
  if (corrects(loss) && p.correction != Correction::truncate && p.correction_low > p.correction_high)
    wrong(fmt::format("correction_low is {}, allowed is at most correction_high, which is {}", p.correction_low, p.correction_high));
  if (loss.averaging == LossAveraging::sequence_token_sum_norm && !(loss.length_norm > 0))
    wrong("length_norm is missing: averaging sequence_token_sum_norm divides by it");
  const bool weighs = corrects(loss) && p.correction != Correction::mask, ratio = loss.kind != LossKind::reinforce && loss.kind != LossKind::dro;
  if (weighs && ratio && p.anchor == RatioAnchor::sampler)
    wrong(
        "the ratio is over the sampler already (anchor sampler), and a correction would count it twice; allowed are anchor proximal or current, or correction "
        "mask");
  if (loss.ratio_level != RatioLevel::token && (loss.kind == LossKind::dppo_tv || loss.kind == LossKind::dppo_kl))
    wrong("dppo bounds the probability of a token; allowed is ratio_level token");
}

void check_loss_data(const TrainSequence& d, std::size_t s, const LossOptions& loss, std::int64_t vocabulary) {
  const auto wrong = [s](const std::string& what) { fail(ErrorCode::invalid_argument, "sequence {}: {}", s, what); };
  const std::size_t n = d.tokens.size();
  if (d.targets_per_row < 1 || d.targets_per_row > vocabulary) wrong(fmt::format("targets_per_row is {}, allowed are 1 to {}", d.targets_per_row, vocabulary));
  const std::size_t count = n * static_cast<std::size_t>(d.targets_per_row);
  const std::string each = d.targets_per_row == 1 ? "" : fmt::format(" of {} a token", d.targets_per_row);
  if (d.targets.size() != count || d.weights.size() != count)
    wrong(fmt::format("{} tokens, {} targets and {} weights; allowed are equal numbers{}", n, d.targets.size(), d.weights.size(), each));
  if (!(d.temperature > 0 && std::isfinite(d.temperature))) wrong(fmt::format("its temperature is {}, allowed are finite numbers above 0", d.temperature));
  if (!d.kept_tokens.empty() && d.kept_tokens.size() != n)
    wrong(fmt::format("{} tokens and {} kept sets; allowed are equal numbers, or no kept sets", n, d.kept_tokens.size()));
  for (std::size_t i = 0; i < d.kept_tokens.size(); ++i) {
    if (const std::string fault = d.kept_tokens[i].fault(vocabulary); !fault.empty()) wrong(fmt::format("token {} has {}", i, fault));
    for (std::size_t k = i * static_cast<std::size_t>(d.targets_per_row); k < (i + 1) * static_cast<std::size_t>(d.targets_per_row); ++k)
      if (d.targets[k] >= 0 && !d.kept_tokens[i].contains(d.targets[k]))
        wrong(fmt::format("target {} is token {}, which is not among its {} kept tokens", k, d.targets[k], d.kept_tokens[i].count));
  }
  const LossParameters& p = loss.parameters;
  const bool policy = is_policy(loss.kind), value = loss.kind == LossKind::value;
  const bool old = policy && (corrects(loss) || (p.anchor == RatioAnchor::sampler && (loss.kind != LossKind::reinforce || p.kl == KlEstimator::unbiased)));
  if (policy && (d.advantages.size() != count || (old && d.old_logprobs.size() != count)))
    wrong(
        fmt::format("{} tokens, {} advantages and {} old log-probabilities; allowed are equal numbers{}", n, d.advantages.size(), d.old_logprobs.size(), each));
  struct Column {
    const char* name;
    const std::vector<float>& values;
    bool needed;
    const char* why;
  };
  for (const Column& c : {Column{"weight", d.weights, true, ""},
                          {value ? "return" : "advantage", d.advantages, policy || value, ""},
                          {value ? "value" : "old log-probability", d.old_logprobs, old || (value && value_clip(loss) > 0), ""},
                          {"proximal log-probability", d.proximal_logprobs, policy && p.anchor == RatioAnchor::proximal, "the anchor is proximal"},
                          {"reference log-probability", d.reference_logprobs, policy && regularises(loss), "the loss has a KL term"},
                          {"clip_low_threshold", d.clip_low, false, ""},
                          {"clip_high_threshold", d.clip_high, false, ""},
                          {"ratio mask", d.ratio_mask, false, ""}}) {
    if (c.values.size() != count && (c.needed || !c.values.empty()))
      wrong(fmt::format("{} tokens and {} values of {}; allowed are equal numbers{}{}{}", n, c.values.size(), c.name, each, *c.why ? ", since " : "", c.why));
    for (std::size_t i = 0; i < c.values.size(); ++i)
      if (!std::isfinite(c.values[i])) wrong(fmt::format("{} {} is not finite", c.name, i));
  }
  double weights = 0;
  bool trains = false;
  for (std::size_t i = 0; i < count; ++i) {
    if (d.targets[i] >= vocabulary) wrong(fmt::format("target {} is {}, allowed are -1 to {}", i, d.targets[i], vocabulary - 1));
    if (d.targets[i] < 0) continue;
    weights += static_cast<double>(d.weights[i]);
    trains = trains || d.weights[i] != 0;
  }
  if (loss.averaging == LossAveraging::sequence_token_mean && trains && !(weights > 0))
    wrong(fmt::format("its weights sum to {}, which averaging sequence_token_mean divides by; allowed are sums above 0", weights));
  if (policy && p.entropy_coefficient != 0 && d.targets_per_row > 1)
    wrong(fmt::format("targets_per_row is {}, and an entropy bonus is of rows with 1 target", d.targets_per_row));
}

}  // namespace lockstep
