#include "launch/launcher.h"

#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/seconds.h"
#include "launch/attempt.h"
#include "launch/host_pool.h"
#include "launch/host_questions.h"
#include "launch/launch_record.h"
#include "launch/restart_rule.h"
#include "launch/run_progress.h"
#include "parallel/process_name.h"

namespace lockstep {

namespace {
constexpr double kAnswersWithin = 6;  // seconds, of a host that is asked
constexpr int kLook = 50;             // milliseconds between two looks

nlohmann::ordered_json hosts_json(const std::vector<Host>& hosts) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Host& host : hosts) all.push_back({{"name", host.name}, {"slots", host.slots}});
  return all;
}

class Launcher {
 public:
  explicit Launcher(const LaunchSettings& settings)
      : s_(settings),
        pool_(settings.hosts, {.first_wait = settings.take_back, .most_losses = settings.restarts}),
        rule_(settings.restarts, settings.back_off),
        questions_(settings.program, kAnswersWithin),
        progress_(settings.run),
        record_(settings.log_file, settings.run) {}

  LaunchSummary run() {
    try {
      drop_silent_hosts();
      while (!s_.stop.stopped() && start_once()) {
      }
    } catch (const Error& e) {
      record_.add("end", {{"error", e.what()}, {"starts", summary_.starts}, {"losses", summary_.losses}, {"seconds", now()}});
      throw;
    }
    summary_.stopped = s_.stop.stopped();
    progress_.look();
    summary_.saved = progress_.saved();
    record_.add("end", {{"status", summary_.status},
                        {"stopped", summary_.stopped},
                        {"starts", summary_.starts},
                        {"losses", summary_.losses},
                        {"saved_step", summary_.saved},
                        {"seconds", now()}});
    return summary_;
  }

 private:
  double now() const { return seconds_since(began_); }
  void say(const std::string& sentence) const {
    if (s_.say) s_.say(sentence);
  }
  const std::string& name_of(int host) const { return pool_.all()[static_cast<std::size_t>(host)].name; }

  // Asks them all and waits for the answers.
  std::vector<std::pair<int, bool>> ask(const std::vector<int>& hosts) {
    std::vector<std::pair<int, bool>> all;
    for (const int host : hosts) questions_.ask(host, name_of(host), now());
    while (questions_.open()) {
      for (const auto& answer : questions_.answers(now())) all.push_back(answer);
      if (questions_.open()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return all;
  }
  // Those in use that do not answer are out of use: their names.
  std::vector<std::string> drop_silent_hosts() {
    std::vector<int> used;
    for (const Host& host : pool_.usable())
      for (std::size_t h = 0; h < pool_.all().size(); ++h)
        if (pool_.all()[h].name == host.name) used.push_back(static_cast<int>(h));
    std::vector<std::string> silent;
    for (const auto& [host, answers] : ask(used)) {
      if (answers) continue;
      pool_.lose_host(host, now());
      silent.push_back(name_of(host));
      say(fmt::format("host {} does not answer; going on without it", silent.back()));
      record_.add("silent", {{"host", silent.back()}});
    }
    return silent;
  }
  // Until some host may be used, or the restarts are used up.
  void wait_for_a_host() {
    while (pool_.usable().empty() && !s_.stop.stopped()) {
      for (const auto& [host, answers] : ask(pool_.may_come_back())) pool_.answered(host, answers, now());
      if (!pool_.take_back().empty()) return;
      back_off("no host answers", false);
    }
  }
  // Waits as the rule says, or gives up.
  void back_off(const std::string& why, bool came_on) {
    const std::optional<double> seconds = rule_.after_loss(came_on);
    if (!seconds) give_up(why);
    if (*seconds > 0) say(fmt::format("waiting {:.0f} s before the next start", *seconds));
    record_.add("wait", {{"seconds", *seconds}, {"losses_in_a_row", rule_.in_a_row()}});
    for (const double until = now() + *seconds; now() < until && !s_.stop.stopped();) std::this_thread::sleep_for(std::chrono::milliseconds(kLook));
  }
  [[noreturn]] void give_up(const std::string& why) {
    progress_.look();
    const int worst = pool_.worst();
    const std::string who = worst < 0 ? "no host was lost" : fmt::format("host {} was lost {} times", name_of(worst), pool_.losses(worst));
    fail(ErrorCode::io,
         "{} losses in a row without a new checkpoint, allowed are {} (--restarts): {}, the last time {}; the run is saved at step {}, and goes on with "
         "--resume-if-there",
         rule_.in_a_row(), s_.restarts, who, why, progress_.saved());
  }

  // One start, to its end. False: there is no other one.
  bool start_once() {
    wait_for_a_host();
    if (s_.stop.stopped()) return false;
    const std::vector<Host> hosts = pool_.usable();
    const LaunchLayout layout = s_.layout(hosts);
    progress_.begin();
    const bool resume = summary_.starts == 0 ? s_.resume : progress_.begun();
    const double started = now();
    ++summary_.starts;
    say(fmt::format("start {}: {} process{} on {}, {}{}{}", summary_.starts, layout.processes, layout.processes == 1 ? "" : "es",
                    hosts_text(hosts_taken(hosts, layout.processes)), layout.ranks.text(), layout.why.empty() ? "" : " (" + layout.why + ")",
                    resume ? fmt::format(", from step {}", progress_.saved()) : ""));
    record_.add("start", {{"start", summary_.starts},
                          {"hosts", hosts_json(hosts_taken(hosts, layout.processes))},
                          {"processes", layout.processes},
                          {"ranks", layout.ranks.text()},
                          {"resume", resume},
                          {"step", progress_.saved()}});
    Attempt attempt(mpirun_line(s_.program, hosts, layout, resume, summary_.starts));
    watch(attempt, started);
    progress_.look();
    const Attempt::Outcome outcome = attempt.outcome(layout.processes, now());
    summary_.status = outcome.status;
    if (s_.stop.stopped() || outcome.end == Attempt::End::finished || outcome.end == Attempt::End::failed) return false;
    if (outcome.end == Attempt::End::saved) return take_back();
    lost(outcome, attempt.lost_at().value_or(now()));
    return true;
  }

  void watch(Attempt& attempt, double started) {
    bool stepped = false;
    while (attempt.runs()) {
      attempt.pass(kLook, now(), s_.save_seconds);
      record_.write();
      const std::int64_t saved_before = progress_.saved();
      if (progress_.look() && !stepped) stepped = true, first_step(started);
      if (progress_.saved() > saved_before) {
        pool_.checkpoint();
        if (pool_.somebody_waits()) attempt.ask_to_save(now());
      }
      if (s_.stop.stopped()) attempt.ask_to_save(now());
      for (const int host : pool_.to_ask(now())) questions_.ask(host, name_of(host), now());
      for (const auto& [host, answers] : questions_.answers(now())) {
        pool_.answered(host, answers, now());
        if (!answers) continue;
        say(fmt::format("host {} answers; its slots are taken back at the next checkpoint", name_of(host)));
        record_.add("answer", {{"host", name_of(host)}});
      }
    }
  }

  void first_step(double started) {
    const double seconds = now() - started;
    nlohmann::ordered_json fields = {{"step", progress_.step()}, {"seconds", seconds}, {"seconds_since_loss", nullptr}};
    if (loss_seen_) {
      fields["seconds_since_loss"] = now() - *loss_seen_;
      say(fmt::format("step {} is taken, {:.1f} s after the loss", progress_.step(), now() - *loss_seen_));
    }
    loss_seen_.reset();
    record_.add("step", fields);
  }

  bool take_back() {
    const std::vector<std::string> names = pool_.take_back();
    say(fmt::format("saved at step {}, to take back {}", progress_.saved(), fmt::join(names, ", ")));
    record_.add("take_back", {{"hosts", names}, {"step", progress_.saved()}});
    return true;
  }

  void lost(const Attempt::Outcome& outcome, double seen) {
    ++summary_.losses;
    loss_seen_ = seen;
    const std::optional<ProcessName> who = find_process_name(outcome.lost);
    const int host = who ? pool_.host_of(who->process, who->host) : pool_.usable().size() == 1 ? pool_.host_of(0, "") : -1;
    const std::vector<std::string> silent = drop_silent_hosts();
    const std::string why = outcome.end == Attempt::End::not_started
                                ? fmt::format("mpirun ended with status {} before any process began; its own words stand above", outcome.status)
                                : outcome.lost;
    // Every host answers, and nothing has ever begun: the next time is no other.
    if (outcome.end == Attempt::End::not_started && silent.empty() && summary_.starts == 1) fail(ErrorCode::io, "{}; docs/cluster.md says what they mean", why);
    if (host >= 0 && std::find(silent.begin(), silent.end(), name_of(host)) == silent.end()) pool_.lose_slot(host, now());
    const std::int64_t saved = progress_.saved(), step = std::max(progress_.step(), saved);
    say(fmt::format("lost at step {}: {}{}; going on from step {}", step, why, host >= 0 ? fmt::format(", of host {}", name_of(host)) : "", saved));
    nlohmann::ordered_json fields = {{"words", why}, {"process", nullptr}, {"host", nullptr}, {"silent_hosts", silent}, {"step", step}, {"saved_step", saved}};
    if (who) fields["process"] = who->process;
    if (host >= 0) fields["host"] = name_of(host);
    record_.add("loss", fields);
    back_off(why, saved > saved_at_loss_);
    saved_at_loss_ = saved;
  }

  const LaunchSettings& s_;
  HostPool pool_;
  RestartRule rule_;
  HostQuestions questions_;
  RunProgress progress_;
  LaunchRecord record_;
  LaunchSummary summary_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::optional<double> loss_seen_;
  std::int64_t saved_at_loss_ = 0;
};
}  // namespace

LaunchSummary run_launch(const LaunchSettings& settings) { return Launcher(settings).run(); }

}  // namespace lockstep
