#include "runs/run_report.h"

#include <algorithm>
#include <set>

#include "base/base64.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "runs/page_bundle.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostSteps = 40;  // of an arm, with transcripts

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// JSON in a script element: no "</script>" and no "<!--" may stand in it.
std::string inert(std::string json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<') text += "\\u003c";
    else text += c;
  }
  return text;
}

// What a Content-Security-Policy calls an inline element by.
std::string policy_hash(std::string_view content) {
  const std::string hex = sha256_hex(content);
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return "'sha256-" + to_base64(bytes) + "'";
}

void replace_once(std::string& text, std::string_view from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) fail(ErrorCode::internal, "the page has no '{}'", from);
  text.replace(at, from.size(), to);
}

Json transcripts_of(const RunReader& reader, const std::string& run, const std::string& arm, std::size_t& room) {
  Json by_step = Json::object();
  const Json steps = reader.transcript_steps(run, arm)["steps"];
  std::set<std::size_t> chosen;
  const std::size_t count = std::min(steps.size(), kMostSteps);
  for (std::size_t i = 0; i < count; ++i) chosen.insert(count == 1 ? 0 : i * (steps.size() - 1) / (count - 1));
  for (const std::size_t index : chosen) {
    const std::int64_t step = steps[index];
    Json entries = reader.transcripts(run, arm, step)["entries"];
    const std::size_t bytes = dump(entries).size();
    if (bytes > room) break;
    room -= bytes;
    by_step[std::to_string(step)] = std::move(entries);
  }
  return by_step;
}
}  // namespace

std::string run_report(const std::filesystem::path& run) {
  const RunReader reader({.runs = {run}});
  Json listed = reader.list();
  if (listed["runs"].empty()) fail(ErrorCode::not_found, "'{}' is no run: it has neither config.json nor metrics.jsonl", run.string());
  Json& entry = listed["runs"][0];
  const std::string name = entry["name"];
  entry["live"] = false;
  Json data{{"title", name},
            {"runs", listed["runs"]},
            {"about", {{name, reader.about(name)}}},
            {"ranks", {{name, reader.ranks(name)}}},
            {"metrics", {{name, Json::object()}}},
            {"transcripts", {{name, Json::object()}}}};
  for (const Json& arm : entry["arms"]) data["metrics"][name][arm["name"]] = reader.metrics(name, arm["name"], {});
  std::size_t room = kMostReportBytes - std::min(kMostReportBytes, dump(data).size());
  const std::size_t share = room / std::max<std::size_t>(1, entry["arms"].size());
  for (const Json& arm : entry["arms"]) {
    std::size_t of_arm = share;
    if (arm["transcripts"]) data["transcripts"][name][arm["name"]] = transcripts_of(reader, name, arm["name"], of_arm);
  }

  const std::string script(page_files()[1].plain), style(page_files()[2].plain);
  if (script.find("</script") != std::string::npos || style.find("</style") != std::string::npos)
    fail(ErrorCode::internal, "the page's bundle would end its own element");
  std::string html(page_files()[0].plain);
  replace_once(
      html, "<meta name=\"color-scheme\" content=\"light dark\">",
      fmt::format(
          "<meta name=\"color-scheme\" content=\"light dark\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src {}; "
          "style-src {}; img-src data:; base-uri 'none'; form-action 'none'\">",
          policy_hash(script), policy_hash(style)));
  replace_once(html, "<link rel=\"stylesheet\" href=\"assets/app.css\">", "<style>" + style + "</style>");
  replace_once(html, "<script src=\"assets/app.js\" defer></script>\n", "");
  replace_once(html, "</body>",
               "<script type=\"application/json\" id=\"lockstep-report\">" + inert(dump(data)) + "</script>\n<script>" + script + "</script>\n</body>");
  return html;
}

void write_run_report(const std::filesystem::path& run, const std::filesystem::path& file) { write_file_atomic(file, run_report(run)); }

}  // namespace lockstep
