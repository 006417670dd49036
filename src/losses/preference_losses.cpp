#include "losses/preference_losses.h"

#include <algorithm>
#include <cmath>

#include "base/choice.h"
#include "base/error.h"
#include "numerics/elementary_double.h"

namespace lockstep {
namespace {

// log(1 + u), 0 <= u <= 1, as 2 atanh(u / (2 + u)): nothing cancels for small u.
double log_one_plus(double u) {
  const double s = u / (2.0 + u), z = s * s;
  double p = 1.0 / 37.0;
  for (int n = 35; n >= 1; n -= 2) p = p * z + 1.0 / n;
  return 2.0 * s * p;
}

// -log sigmoid(-x) = log(1 + e^x).
double softplus(double x) { return std::max(x, 0.0) + log_one_plus(exp_double(-std::abs(x))); }

double sigmoid(double x) {
  const double e = exp_double(-std::abs(x));
  return x >= 0 ? 1.0 / (1.0 + e) : e / (1.0 + e);
}

// 1 - e^x for x < 0; its series where the difference would cancel.
double one_minus_exp(double x) {
  if (x < -0.5) return 1.0 - exp_double(x);
  double p = 1.0;
  for (int i = 18; i >= 2; --i) p = 1.0 + p * x / i;
  return -x * p;
}

// The log-odds of a mean log-probability m, log(p / (1 - p)), and its derivative. A mean of 0 is no probability below 1 that fp32 has: the nearest is taken.
struct LogOdds {
  double value, slope;
};
LogOdds log_odds(double m) {
  const double below_one = std::min(m, -1.0 / (1 << 24)), others = one_minus_exp(below_one);
  return {below_one - log_double(others), 1.0 / others};
}

double mean(const AnswerScore& a) { return a.logprob / a.weight; }

}  // namespace

const std::vector<PreferenceRow>& preference_rows() {
  // name, formula, reference, pairs, options, beta, values
  static const std::vector<PreferenceRow> rows = {
      {"dpo", "-log s(b D)", true, true, kBeta, 0.1},
      {"cdpo", "-(1 - e) log s(b D) - e log s(-b D)", true, true, kBeta | kLabelSmoothing, 0.1},
      {"robust", "(-(1 - e) log s(b D) + e log s(-b D)) / (1 - 2 e)", true, true, kBeta | kLabelSmoothing, 0.1},
      {"hinge", "max(0, 1 - b D)", true, true, kBeta, 0.1},
      {"ipo", "(M - 1 / (2 b))^2", true, true, kBeta, 0.1},
      {"sigmoid_norm", "-log s(b M)", true, true, kBeta, 0.1},
      {"simpo", "-log s(b (m_c - m_r) - g)", false, true, kBeta | kGamma, 2.0},
      {"orpo", "-m_c - b log s(odds_c - odds_r)", false, true, kBeta, 0.1},
      {"cpo", "-log s(b (l_c - l_r)) - a m_c", false, true, kBeta | kAlpha, 0.1},
      {"reward", "-log s(r_c - r_r)", false, true, 0, 1.0, true},
      {"kto", "w_d (1 - s(b (d - z))), w_u (1 - s(b (z - d)))", true, false, kBeta | kLabelWeights, 0.1},
  };
  return rows;
}

std::vector<std::string> preference_names() {
  std::vector<std::string> names;
  for (const PreferenceRow& row : preference_rows()) names.emplace_back(row.name);
  return names;
}

const PreferenceRow& preference_row(std::string_view name) {
  for (const PreferenceRow& row : preference_rows())
    if (row.name == name) return row;
  fail_choice("the loss", name, preference_names());
}

void check(const PreferenceSettings& s) {
  preference_row(s.loss);
  if (!(s.beta > 0 && s.beta <= 1e6)) fail(ErrorCode::invalid_argument, "beta is {}, allowed is above 0 to 1e6", s.beta);
  if (!(s.label_smoothing >= 0 && s.label_smoothing < 0.5))
    fail(ErrorCode::invalid_argument, "label_smoothing is {}, allowed is 0 to below 0.5", s.label_smoothing);
  for (const auto& [name, value] :
       {std::pair{"gamma", s.gamma}, {"alpha", s.alpha}, {"desirable_weight", s.desirable_weight}, {"undesirable_weight", s.undesirable_weight}})
    if (!(value >= 0 && value <= 1e6)) fail(ErrorCode::invalid_argument, "{} is {}, allowed is 0 to 1e6", name, value);
}

PreferenceValue preference_loss(const PreferenceSettings& s, const AnswerScore& chosen, const AnswerScore& rejected) {
  const PreferenceRow& row = preference_row(s.loss);
  const std::string_view name = row.name;
  // x: what the pair's loss is a function of; its derivatives by the two sums.
  double x = 0, by_chosen = 0, by_rejected = 0;
  PreferenceValue v;
  const double b = s.beta, e = s.label_smoothing;
  const bool means = name == "ipo" || name == "sigmoid_norm" || name == "simpo";
  const double chosen_unit = means ? 1 / chosen.weight : 1, rejected_unit = means ? 1 / rejected.weight : 1;
  if (name == "orpo") {
    const LogOdds c = log_odds(mean(chosen)), r = log_odds(mean(rejected));
    x = c.value - r.value;
    by_chosen = c.slope / chosen.weight;
    by_rejected = -r.slope / rejected.weight;
    v.chosen_reward = b * mean(chosen);
    v.rejected_reward = b * mean(rejected);
  } else {
    const double c = (chosen.logprob - chosen.reference) * chosen_unit, r = (rejected.logprob - rejected.reference) * rejected_unit;
    const double scale = name == "ipo" ? 1 : b;
    x = scale * (c - r) - (name == "simpo" ? s.gamma : 0);
    by_chosen = scale * chosen_unit;
    by_rejected = -scale * rejected_unit;
    v.chosen_reward = b * c;
    v.rejected_reward = b * r;
  }
  double slope = 0;  // of the loss by x
  if (name == "cdpo" || name == "robust") {
    const double other = name == "robust" ? -e : e, divisor = name == "robust" ? 1 - 2 * e : 1;
    v.loss = ((1 - e) * softplus(-x) + other * softplus(x)) / divisor;
    slope = (other * sigmoid(x) - (1 - e) * sigmoid(-x)) / divisor;
  } else if (name == "hinge") {
    v.loss = std::max(0.0, 1 - x);
    slope = x < 1 ? -1 : 0;
  } else if (name == "ipo") {
    const double distance = x - 1 / (2 * b);
    v.loss = distance * distance;
    slope = 2 * distance;
  } else {
    const double factor = name == "orpo" ? b : 1;
    v.loss = factor * softplus(-x);
    slope = -factor * sigmoid(-x);
  }
  v.chosen_slope = slope * by_chosen;
  v.rejected_slope = slope * by_rejected;
  // The chosen answer's own likelihood, a mean over its tokens.
  if (const double own = name == "orpo" ? 1 : name == "cpo" ? s.alpha : 0; own != 0) {
    v.loss -= own * mean(chosen);
    v.chosen_slope -= own / chosen.weight;
  }
  return v;
}

PreferenceValue labelled_loss(const PreferenceSettings& s, const AnswerScore& answer, bool desirable, double shift) {
  const double d = answer.logprob - answer.reference, sign = desirable ? 1 : -1, weight = desirable ? s.desirable_weight : s.undesirable_weight;
  const double x = sign * s.beta * (d - shift), p = sigmoid(x), q = sigmoid(-x);
  PreferenceValue v;
  v.loss = weight * q;
  v.chosen_slope = -weight * sign * s.beta * (p * q);
  v.chosen_reward = s.beta * d;
  return v;
}

double kto_shift(const std::vector<AnswerScore>& mismatched) {
  double sum = 0;
  for (const AnswerScore& a : mismatched) sum += a.logprob - a.reference;
  return mismatched.empty() ? 0 : std::max(0.0, sum / static_cast<double>(mismatched.size()));
}

LabelledRewards labelled_rewards(const std::vector<double>& good, const std::vector<double>& bad) {
  const auto goods = static_cast<double>(good.size()), bads = static_cast<double>(bad.size());
  LabelledRewards told;
  for (const double g : good) told.good += g / goods;
  for (const double b : bad) told.bad += b / bads;
  std::vector<double> ascending = bad;
  std::erase_if(ascending, [](double b) { return std::isnan(b); });  // which no reward is above or equal to
  std::sort(ascending.begin(), ascending.end());
  double right = 0;
  for (const double g : good) {
    if (std::isnan(g)) continue;
    const auto [below, above] = std::equal_range(ascending.begin(), ascending.end(), g);
    right += static_cast<double>(below - ascending.begin()) + 0.5 * static_cast<double>(above - below);
  }
  if (goods * bads > 0) told.accuracy = right / (goods * bads);
  return told;
}

AnswerScore answer_score(const TrainSequence& answer, const std::vector<float>& logprobs, double reference) {
  AnswerScore score;
  score.reference = reference;
  for (std::size_t i = 0; i < answer.weights.size(); ++i) {
    if (answer.targets[i] < 0 || answer.weights[i] == 0) continue;
    score.logprob += static_cast<double>(answer.weights[i]) * static_cast<double>(logprobs[i]);
    score.weight += static_cast<double>(answer.weights[i]);
  }
  return score;
}

void weigh_answer(TrainSequence& answer, double slope) {
  for (float& weight : answer.weights) weight = static_cast<float>(-slope * static_cast<double>(weight));
}

}  // namespace lockstep
