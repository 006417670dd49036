// A repeated case as text and as JSON.
#include <algorithm>
#include <bit>

#include "base/error.h"
#include "parity/parity_case.h"

namespace lockstep {

namespace {
std::string text_of_logprob(std::uint32_t bits) { return fmt::format("{:#010x} ({:.9g})", bits, std::bit_cast<float>(bits)); }

std::string text_of_point(const CasePoint& point) { return fmt::format("position {}, token {}", point.position, point.token); }

// "3, first at position 12, token 45: 0x... in the file, 0x... here"
std::string text_of_count(const CaseCount& count) {
  if (!count.first) return "0";
  return fmt::format("{}, first at {}: {} in the file, {} here", count.different, text_of_point(*count.first), text_of_logprob(count.first->expected),
                     text_of_logprob(count.first->got));
}

// Of a case whose ways agree here: whose numbers theirs are.
std::string text_of_verdict(const CaseReport& report) {
  if (report.ways.empty()) return "NOT REPEATED: nothing could be computed here\n";
  const CaseWay& way = report.ways.front();  // all have its bits
  const bool sampler = !way.from_sampler.first, trainer = !way.from_trainer.first;
  const std::string all = fmt::format("NOT REPEATED: all {} ways have the same bits here", report.ways.size());
  if (sampler && trainer) return all + ", those of the file, which holds no difference\n";
  if (sampler) return fmt::format("{}, those that the sampler had; no way has the trainer's {} other ones\n", all, way.from_trainer.different);
  if (trainer) return fmt::format("{}, those that the trainer had; no way has the sampler's {} other ones\n", all, way.from_sampler.different);
  return fmt::format("{}, and of the file's bits neither the sampler's (other in {}) nor the trainer's (other in {})\n", all, way.from_sampler.different,
                     way.from_trainer.different);
}

nlohmann::ordered_json json_of_point(const CasePoint& point) {
  return {
      {"position", point.position}, {"token", point.token}, {"expected", fmt::format("{:#010x}", point.expected)}, {"got", fmt::format("{:#010x}", point.got)}};
}

nlohmann::ordered_json json_of_count(const CaseCount& count) {
  nlohmann::ordered_json json{{"different", count.different}, {"first", nullptr}};
  if (count.first) json["first"] = json_of_point(*count.first);
  return json;
}
}  // namespace

nlohmann::ordered_json to_json(const CaseReport& report) {
  nlohmann::ordered_json json;
  json["repeated"] = report.repeated();
  json["case"] = report.file;
  json["profile"] = report.one.profile;
  json["step"] = report.one.step;
  json["weights_version"] = report.one.weights_version;
  json["tokens"] = report.one.positions.size();
  json["recorded"] = json_of_count(report.recorded);
  json["finding"] = nullptr;
  if (report.finding) {
    json["finding"] = json_of_point(report.finding->point);
    for (const auto& [name, index] : {std::pair("expected_by", report.finding->expected), std::pair("got_by", report.finding->got)})
      json["finding"][name] = {{"way", report.ways[index].way}, {"place", report.ways[index].place}};
  }
  json["ways"] = nlohmann::ordered_json::array();
  for (const CaseWay& way : report.ways)
    json["ways"].push_back({{"way", way.way},
                            {"place", way.place},
                            {"of", way.samples ? "sampler" : "trainer"},
                            {"from_sampler", json_of_count(way.from_sampler)},
                            {"from_trainer", json_of_count(way.from_trainer)},
                            {"other_kept_sets", way.other_kept_sets}});
  json["notes"] = report.notes;
  return json;
}

std::string to_text(const CaseReport& report) {
  const DifferenceCase& one = report.one;
  std::string text = fmt::format("{}: step {}, weights version {}, {} trained tokens of a text of {}, profile {}, temperature {}\n", report.file, one.step,
                                 one.weights_version, one.positions.size(), one.tokens.size(), one.profile, one.temperature);
  if (const auto& first = report.recorded.first)
    text += fmt::format("the file's first difference: {}: {} where it was sampled, {} in training; {} in all\n", text_of_point(*first),
                        text_of_logprob(first->expected), text_of_logprob(first->got), report.recorded.different);
  else text += "the file holds no difference\n";
  text += fmt::format("{:<28}{:<44}{:>18}{:>18}\n", "bits other than the file's", "", "the sampler's", "the trainer's");
  for (const CaseWay& way : report.ways) {
    text += fmt::format("{:<28}{:<44}{:>18}{:>18}\n", way.way, way.place, way.from_sampler.different, way.from_trainer.different);
    if (way.from_sampler.first) text += fmt::format("  the sampler's: {}\n", text_of_count(way.from_sampler));
    if (way.from_trainer.first) text += fmt::format("  the trainer's: {}\n", text_of_count(way.from_trainer));
    if (way.other_kept_sets > 0) text += fmt::format("  {} tokens could be drawn from other sets than the file's\n", way.other_kept_sets);
  }
  for (const std::string& note : report.notes) text += "note: " + note + "\n";
  if (!report.finding) return text + text_of_verdict(report);
  const CaseFinding& found = *report.finding;
  const CaseWay &expected = report.ways[found.expected], &got = report.ways[found.got];
  return text + fmt::format("REPEATED: {}: {} by {} on {}, {} by {} on {}\n", text_of_point(found.point), text_of_logprob(found.point.expected), expected.way,
                            expected.place, text_of_logprob(found.point.got), got.way, got.place);
}

}  // namespace lockstep
