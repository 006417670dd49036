#include "engine/drafts/drafter.h"

#include <algorithm>

#include "engine/constraint_masks.h"

namespace lockstep {

namespace {
constexpr double kChanceAtFirst = 0.6;
// Where guesses do not pay, one token is guessed after so many steps, after twice as many when that was wrong again, and so on.
constexpr std::int64_t kTriedAgain = 24, kTriedAgainAtMost = 768;

std::size_t index_of(DraftKind kind) { return static_cast<std::size_t>(kind); }
}  // namespace

void Drafter::begin(Sequence& s, Request& request) {
  const DraftOptions options = request.drafts.value_or(options_);
  check_draft_sources(options, layer_, "the source of drafts");
  if (options.length == DraftOptions::Length::off || s.sampling.max_tokens < 2) return;
  s.drafting = std::make_unique<Drafting>();
  Drafting& d = *s.drafting;
  d.options = options;
  d.rejects = options.rejects() && s.sampling.temperature > 0;
  d.tries_again_after = kTriedAgain;
  DraftMaterial material{.prompt = s.tokens,
                         .owner = s.prefix_owner,
                         .prediction = std::move(request.prediction),
                         .script = std::move(request.draft_script),
                         .siblings = options.has(DraftKind::siblings) ? &siblings_ : nullptr,
                         .layer_says = layer_ ? &d.layer_says : nullptr};
  for (const DraftSourceRow& row : draft_sources()) {
    if (!row.make || !(options.has(row.kind) || row.for_tests)) continue;
    if (std::unique_ptr<DraftSource> source = row.make(material)) d.sources.push_back({row.kind, std::move(source)});
  }
  if (d.sources.empty() && !(options.has(DraftKind::grammar) && s.sampling.constraint)) s.drafting = nullptr;
}

double Drafter::chance(const Drafting& d, DraftKind kind) const {
  if (kind == DraftKind::grammar) return 1;
  return d.chances[index_of(kind)].right(chances_[index_of(kind)].right(kChanceAtFirst));
}

// The guesses of the first source that has some and whose first token pays.
void Drafter::ask_sources(const Sequence& s, std::int64_t most, double least_chance) {
  Drafting& d = *s.drafting;
  drafted_.clear();
  for (const Drafting::Guess& guess : d.guess) drafted_.push_back(guess.token);
  proposed_.clear();
  for (const Drafting::Source& source : d.sources) {
    if (chance(d, source.kind) < least_chance) continue;
    source.guesses->propose({.text = s.tokens, .prompt_length = s.answer_begin(), .draft = drafted_, .most = most}, proposed_);
    if (proposed_.empty()) continue;
    proposed_by_ = source.kind;
    return;
  }
}

// The row behind the last guess samples the last token at the latest.
std::int64_t Drafter::most_tokens(const Sequence& s) const {
  return std::min(s.drafting->options.tokens, s.sampling.max_tokens - static_cast<std::int64_t>(s.generation.tokens.size()) - 1);
}

std::int64_t Drafter::wants_layer(const Sequence& s, std::int64_t rows) const {
  const Drafting& d = *s.drafting;
  if (!layer_ || !d.options.has(DraftKind::mtp)) return 0;
  const std::int64_t most = most_tokens(s);
  if (most < 1 || d.options.length == DraftOptions::Length::fixed) return std::max<std::int64_t>(most, 0);
  // A token costs its row and what the layer takes to say it.
  const double a_row = costs_.seconds_a_row(rows), said = a_row > 0 ? layer_seconds_ / a_row : 0;
  const double share = costs_.row_share(rows) + said, right = chance(d, DraftKind::mtp);
  std::int64_t tokens = 0;
  for (double all = right; tokens < most && all >= share; all *= right) ++tokens;
  return tokens == 0 && d.steps_without + 1 >= d.tries_again_after ? 1 : tokens;
}

void Drafter::observe_layer(std::int64_t tokens, double seconds) {
  constexpr double kKept = 0.9;
  const double each = seconds / static_cast<double>(std::max<std::int64_t>(tokens, 1));
  layer_seconds_ = layer_seconds_ == 0 ? each : kKept * layer_seconds_ + (1 - kKept) * each;
}

void Drafter::guess(Sequence& s, std::int64_t room, std::int64_t rows) {
  Drafting& d = *s.drafting;
  d.guess.clear();
  d.last_ends = false;
  const std::int64_t most = std::min(most_tokens(s), room);
  if (most < 1) return;
  const std::vector<std::int32_t>& stops = s.sampling.stop_tokens;
  const bool automatic = d.options.length == DraftOptions::Length::automatic;
  const bool tries = automatic && ++d.steps_without >= d.tries_again_after;
  const double share = automatic && !tries ? costs_.row_share(rows) : 0;
  MasksAhead masks(s, vocabulary_);
  std::size_t next = 0;  // of proposed_
  proposed_.clear();
  double all_right = 1;
  for (bool asked = false; static_cast<std::int64_t>(d.guess.size()) < most;) {
    Drafting::Guess guess{masks.only_token(), DraftKind::grammar};
    const bool forced = guess.token >= 0 && d.options.has(DraftKind::grammar);
    if (forced) {
      if (next < proposed_.size() && proposed_[next] == guess.token) ++next;
      else next = proposed_.size(), asked = false;  // sources may know what follows it
    } else {
      if (next == proposed_.size()) {
        if (std::exchange(asked, true)) break;
        ask_sources(s, most - static_cast<std::int64_t>(d.guess.size()), share / all_right);
        next = 0;
        if (proposed_.empty()) break;
      }
      guess = {proposed_[next++], proposed_by_};
      if (d.rejects && guess.kind == DraftKind::mtp) guess.law = d.layer_laws[d.guess.size()];
    }
    all_right *= chance(d, guess.kind);
    if (all_right < share) break;
    if (guess.token < 0 || guess.token >= vocabulary_) break;
    const bool ends = std::find(stops.begin(), stops.end(), guess.token) != stops.end() || !masks.allows(guess.token) || !masks.accept(guess.token);
    if (ends && !d.rejects) break;
    d.guess.push_back(guess);
    // One that was drawn is checked whatever it is: left out where it cannot stand, what is said there would have another law.
    d.last_ends = ends;
    if (ends) break;
    if (tries && !forced) break;
  }
  if (!d.guess.empty()) d.steps_without = 0;
  d.tried = tries && !d.guess.empty();
}

void Drafter::go_on(Sequence& s) {
  Drafting& d = *s.drafting;
  MasksAhead masks(s, vocabulary_);
  for (std::int64_t i = 0; i < d.guess_rows(); ++i)
    if (!masks.accept(d.guess[static_cast<std::size_t>(i)].token)) {
      d.guess.resize(static_cast<std::size_t>(i + 1));
      d.last_ends = true;
    }
}

void Drafter::learn(Sequence& s, std::int64_t guessed, std::int64_t right) {
  Drafting& d = *s.drafting;
  if (d.tried) d.tries_again_after = right > 0 ? kTriedAgain : std::min(2 * d.tries_again_after, kTriedAgainAtMost);
  for (DraftCounters* counters : {&counters_, &d.counters}) {
    ++counters->drafts;
    counters->tokens += guessed;
    counters->accepted += right;
  }
  for (std::int64_t i = 0; i < guessed; ++i) {
    const std::size_t kind = index_of(d.guess[static_cast<std::size_t>(i)].kind);
    for (DraftCounters* counters : {&counters_, &d.counters}) {
      ++counters->tokens_of[kind];
      counters->accepted_of[kind] += i < right;
      counters->accepted_at[static_cast<std::size_t>(i)] += i < right;
    }
    if (i > right) continue;  // behind a wrong one
    d.chances[kind].observe(i < right);
    chances_[kind].observe(i < right);
  }
}

void Drafter::end(Sequence& s) {
  if (!s.drafting) return;
  for (const Drafting::Source& source : s.drafting->sources) source.guesses->end({.text = s.tokens, .prompt_length = s.answer_begin()});
  s.generation.drafts = s.drafting->counters;
}

}  // namespace lockstep
