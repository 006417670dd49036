#include "engine/drafts/draft_options.h"

#include <utility>

#include "base/error.h"
#include "engine/drafts/draft_source.h"

namespace lockstep {

std::vector<DraftKind> draft_kinds() {
  std::vector<DraftKind> kinds;
  for (const DraftSourceRow& row : draft_sources())
    if (!row.for_tests) kinds.push_back(row.kind);
  return kinds;
}

namespace {
std::uint32_t all_sources() {
  std::uint32_t all = 0;
  for (const DraftKind kind : draft_kinds()) all |= std::uint32_t{1} << static_cast<int>(kind);
  return all;
}
}  // namespace

void check_draft_sources(const DraftOptions& options, bool has_layer, std::string_view field) {
  if (has_layer || options.length != DraftOptions::Length::fixed || !options.has(DraftKind::mtp)) return;
  fail(ErrorCode::invalid_argument,
       "{} is '{}', and there is no layer of multi-token prediction to draft with (the model's files have none, or what it runs in began "
       "without that source); allowed are auto, off, or sources with commas: {}",
       field, draft_names(options.sources), draft_names(all_sources() & ~(std::uint32_t{1} << static_cast<int>(DraftKind::mtp))));
}

namespace {
constexpr std::pair<std::string_view, DraftOptions::Acceptance> kAcceptances[] = {{"coupled", DraftOptions::Acceptance::coupled},
                                                                                  {"rejection", DraftOptions::Acceptance::rejection}};
}  // namespace

std::vector<std::string> acceptance_names() {
  std::vector<std::string> names;
  for (const auto& [name, acceptance] : kAcceptances) names.emplace_back(name);
  return names;
}

DraftOptions::Acceptance parse_acceptance(std::string_view text, std::string_view field) {
  for (const auto& [name, acceptance] : kAcceptances)
    if (name == text) return acceptance;
  fail(ErrorCode::invalid_argument, "{} is '{}', allowed are coupled and rejection{}", field, text, did_you_mean(text, acceptance_names()));
}

void check_acceptance(const DraftOptions& options, std::string_view field) {
  if (!options.rejects()) return;
  constexpr auto kSiblings = std::uint32_t{1} << static_cast<int>(DraftKind::siblings);
  const bool automatic = options.length == DraftOptions::Length::automatic;
  if (!automatic && (options.sources & kSiblings) == 0) return;
  fail(ErrorCode::invalid_argument,
       "{} is 'rejection' and guesses come from '{}', whose {} on what else runs, and so would the answer; allowed are off, or sources with commas: {}", field,
       automatic ? "auto" : draft_names(options.sources), automatic ? "length depends" : "siblings depend", draft_names(all_sources() & ~kSiblings));
}

void check_draft_tokens(std::int64_t tokens, std::string_view field) {
  if (tokens < 1 || tokens > DraftOptions::kMostTokens)
    fail(ErrorCode::invalid_argument, "{} is {}, allowed is 1 to {}", field, tokens, DraftOptions::kMostTokens);
}

DraftOptions parse_drafts(std::string_view text, std::int64_t tokens, std::string_view field) {
  DraftOptions options{.tokens = tokens};
  if (text == "off") return options;
  options.length = text == "auto" ? DraftOptions::Length::automatic : DraftOptions::Length::fixed;
  if (text == "auto") options.sources = all_sources();
  for (std::string_view rest = text; options.length == DraftOptions::Length::fixed;) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    std::uint32_t bit = 0;
    std::vector<std::string> names{"auto", "off"};
    for (const DraftKind kind : draft_kinds()) {
      names.emplace_back(draft_name(kind));
      if (name == names.back()) bit = std::uint32_t{1} << static_cast<int>(kind);
    }
    if (bit == 0)
      fail(ErrorCode::invalid_argument, "{} is '{}', allowed are auto, off, or sources with commas: {}{}", field, text, draft_names(all_sources()),
           did_you_mean(name, names));
    options.sources |= bit;
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return options;
}

std::string draft_names(std::uint32_t sources) {
  std::string names;
  for (const DraftSourceRow& row : draft_sources())
    if (sources >> static_cast<int>(row.kind) & 1) names += (names.empty() ? "" : ",") + std::string(row.name);
  return names;
}

std::string_view draft_name(DraftKind kind) {
  for (const DraftSourceRow& row : draft_sources())
    if (row.kind == kind) return row.name;
  fail(ErrorCode::internal, "a source of drafts without a row");
}

}  // namespace lockstep
