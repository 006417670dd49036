#include "parallel/mail.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/byte_record.h"

namespace lockstep {

namespace {
thread_local std::chrono::milliseconds this_patience{0};
constexpr auto kTellLate = std::chrono::seconds(2);  // that a process which waited in vain stays to tell the others

// Waiting costs little: a moment of asking again and again, then shorter and longer sleeps.
class Patience {
 public:
  void pause() {
    if (++turns_ < 100) return std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(turns_ < 1000 ? 20 : 500));
  }

 private:
  int turns_ = 0;
};

std::string bytes_of(const RunEnd& end) {
  ByteWriter out;
  out.value(end.state);
  out.value(end.code);
  out.text(end.message);
  return out.take();
}

RunEnd end_of(const std::string& bytes) {
  ByteReader in(bytes);
  RunEnd end;
  end.state = in.value<RunEnd::State>();
  end.code = in.value<ErrorCode>();
  end.message = in.text();
  return end;
}
}  // namespace

MailPatience::MailPatience(std::chrono::milliseconds most) : outer_(this_patience) { this_patience = most; }
MailPatience::~MailPatience() { this_patience = outer_; }
std::chrono::milliseconds MailPatience::current() { return this_patience; }

template <class F>
auto ProcessMail::wait(const F& ready) {
  for (Patience patience;; patience.pause()) {
    const std::lock_guard lock(mutex_);
    pump();
    if (auto got = ready()) return *std::move(got);
    check_there();
  }
}

ProcessMail::ProcessMail(std::unique_ptr<Wire> wire)
    : wire_(std::move(wire)),
      process_(wire_->process()),
      processes_(wire_->processes()),
      host_(wire_->host()),
      incoming_(static_cast<std::size_t>(processes_)),
      ends_(static_cast<std::size_t>(processes_)),
      failed_(static_cast<std::size_t>(processes_)),
      gone_(static_cast<std::size_t>(processes_)),
      mover_([this] {
        const std::lock_guard lock(mutex_);
        try {
          pump();
        } catch (const Error&) {  // it is kept, for who waits next
        }
      }) {
  for (int p = 0; p < processes_; ++p)
    if (p != process_) listen(p);
}

ProcessMail::~ProcessMail() {
  bool clean = true;
  try {
    {
      const std::lock_guard lock(mutex_);
      in_run_ = false;
      check_there();  // who was told of a loss says no good-bye: the others are to hear of the loss too
      for (int p = 0; p < processes_; ++p)
        if (p != process_) send(p, {{.kind = LetterHead::Kind::bye}, {}});
    }
    // Nothing that was sent is left on the way, and every receive has had its letter: then all may end.
    const auto began = std::chrono::steady_clock::now();
    wait([&]() -> std::optional<bool> {
      if (!late_.empty() && std::chrono::steady_clock::now() - began > kTellLate) fail(ErrorCode::io, "{}", late_);  // it may never come
      for (int p = 0; p < processes_; ++p)
        if (p != process_ && !gone_[static_cast<std::size_t>(p)]) return {};
      if (!sent_.empty()) return {};
      return true;
    });
  } catch (const std::exception&) {
    clean = false;
  }
  mover_.stop();
  wire_->stop(clean);
}

void ProcessMail::listen(int process) {
  Incoming& in = incoming_[static_cast<std::size_t>(process)];
  in = {};
  in.request = wire_->receive(process, &in.letter.head, sizeof(LetterHead));
}

void ProcessMail::send(int process, Letter&& letter) {
  letter.head.bytes = letter.body.size();
  Sent& sent = sent_.emplace_back(Sent{std::move(letter), {}});
  sent.requests.push_back(wire_->send(process, &sent.letter.head, sizeof(LetterHead)));
  if (!sent.letter.body.empty()) sent.requests.push_back(wire_->send(process, sent.letter.body.data(), sent.letter.body.size()));
}

void ProcessMail::deliver(int process, Letter&& letter) {
  switch (letter.head.kind) {
    case LetterHead::Kind::data: {
      if (letter.head.run < run_ || (letter.head.run == run_ && !in_run_)) return;  // of a run that failed
      const Slot slot{letter.head.group, letter.head.from, letter.head.to};
      letters_[slot].push_back(std::move(letter));
      return;
    }
    case LetterHead::Kind::end:
      ends_[static_cast<std::size_t>(process)][letter.head.run] = end_of(letter.body);
      return;
    case LetterHead::Kind::call:
      calls_.push_back(std::move(letter));
      return;
    case LetterHead::Kind::failed:
      failed_[static_cast<std::size_t>(process)] = {letter.head.number, std::move(letter.body)};
      return;
    case LetterHead::Kind::bye:
      gone_[static_cast<std::size_t>(process)] = true;
      return;
  }
  fail(ErrorCode::internal, "process {} sent a letter of kind {}", process, static_cast<unsigned>(letter.head.kind));
}

void ProcessMail::pump() {
  if (!broken_.empty()) fail(ErrorCode::io, "{}", broken_);
  try {
    move_letters();
  } catch (const Error& e) {
    broken_ = e.what();
    throw;
  }
}

// Moves what is on the way.
void ProcessMail::move_letters() {
  for (auto sent = sent_.begin(); sent != sent_.end();) {
    auto& requests = sent->requests;
    while (!requests.empty() && wire_->done(requests.back())) requests.pop_back();
    sent = requests.empty() ? sent_.erase(sent) : std::next(sent);
  }
  for (int p = 0; p < processes_; ++p) {
    if (p == process_) continue;
    Incoming& in = incoming_[static_cast<std::size_t>(p)];
    while (in.request && wire_->done(in.request)) {
      in.request = nullptr;
      if (!in.body && in.letter.head.bytes > 0) {
        in.body = true;
        in.letter.body.resize(in.letter.head.bytes);
        in.request = wire_->receive(p, in.letter.body.data(), in.letter.body.size());
        continue;
      }
      const bool last = in.letter.head.kind == LetterHead::Kind::bye;
      deliver(p, std::exchange(in.letter, {}));
      if (!last) listen(p);
    }
  }
}

void ProcessMail::watch(std::function<std::string()> lost) {
  const std::lock_guard lock(mutex_);
  lost_ = std::move(lost);
}

std::string ProcessMail::lost() {
  const std::lock_guard lock(mutex_);
  return lost_ ? lost_() : std::string();
}

void ProcessMail::check_there() const {
  if (lost_)
    if (const std::string lost = lost_(); !lost.empty()) fail(ErrorCode::io, "{}", lost);
  if (!in_run_) return;
  for (int p = 0; p < processes_; ++p) {
    const auto at = static_cast<std::size_t>(p);
    if (ends_[at].contains(run_)) continue;
    if (call_ > 0 && failed_[at].number == call_) fail(ErrorCode::io, "process {} cannot follow: {}", p, failed_[at].words);
    if (gone_[at]) fail(ErrorCode::io, "process {} ended in the middle of a call", p);
  }
  if (!calls_.empty() && calls_.front().head.run < run_) fail(ErrorCode::internal, "process 0 made another call while process {} was in one", process_);
}

void ProcessMail::check_released() const {
  if (released_) throw RankReleased();
  for (const auto& of_process : ends_)
    if (const auto end = of_process.find(run_); end != of_process.end() && end->second.state != RunEnd::State::done) throw RankReleased();
}

void ProcessMail::check_run() {
  const std::lock_guard lock(mutex_);
  pump();
  check_released();
  check_there();
}

void ProcessMail::begin_run() {
  const std::lock_guard lock(mutex_);
  ++run_;
  in_run_ = true;
  released_ = false;
}

void ProcessMail::post(int process, LetterHead head, std::string body) {
  const std::lock_guard lock(mutex_);
  head.run = run_;
  if (process != process_) return send(process, {head, std::move(body)});
  head.bytes = body.size();
  deliver(process, {head, std::move(body)});
}

Letter ProcessMail::take(const Slot& slot, std::uint64_t number, int process) {
  const std::chrono::milliseconds most = MailPatience::current();
  const auto began = std::chrono::steady_clock::now();
  return wait([&]() -> std::optional<Letter> {
    if (released_) throw RankReleased();  // before letters that are here
    std::deque<Letter>& waiting = letters_[slot];
    if (!waiting.empty() && waiting.front().head.run == run_) {
      if (waiting.front().head.number != number)
        fail(ErrorCode::internal, "rank {} expects exchange {} of rank {}, which sends exchange {}", slot.to, number, slot.from, waiting.front().head.number);
      Letter letter = std::move(waiting.front());
      waiting.pop_front();
      return letter;
    }
    check_released();
    if (process != process_ && ends_[static_cast<std::size_t>(process)].contains(run_))
      fail(ErrorCode::internal, "rank {} expects exchange {} of rank {}, which has ended without it", slot.to, number, slot.from);
    if (most.count() > 0 && std::chrono::steady_clock::now() - began > most) {
      late_ =
          fmt::format("process {} (host {}) has waited {:.3g} s for what process {} sends", process_, host_, static_cast<double>(most.count()) / 1e3, process);
      throw LetterLate(late_);
    }
    return {};
  });
}

void ProcessMail::release() {
  const std::lock_guard lock(mutex_);
  released_ = true;
}

std::vector<RunEnd> ProcessMail::finish_run(const RunEnd& mine) {
  {
    const std::lock_guard lock(mutex_);
    ends_[static_cast<std::size_t>(process_)][run_] = mine;
    for (int p = 0; p < processes_; ++p)
      if (p != process_) send(p, {{.kind = LetterHead::Kind::end, .run = run_}, bytes_of(mine)});
  }
  const auto began = std::chrono::steady_clock::now();
  return wait([&]() -> std::optional<std::vector<RunEnd>> {
    std::vector<RunEnd> all;
    for (auto& of_process : ends_) {
      const auto end = of_process.find(run_);
      if (end == of_process.end()) {
        // The way on which a letter was late gives no word of an end either. Those that can be reached are told by now.
        if (!late_.empty() && std::chrono::steady_clock::now() - began > kTellLate) fail(ErrorCode::io, "{}", late_);
        return {};
      }
      all.push_back(end->second);
    }
    for (auto& of_process : ends_) of_process.erase(run_);
    // Letters of the next run may have come; those of this one were read, or are nobody's.
    for (auto& [slot, waiting] : letters_)
      while (!waiting.empty() && waiting.front().head.run <= run_) waiting.pop_front();
    in_run_ = false;
    return all;
  });
}

void ProcessMail::call(const std::string& bytes) {
  const std::lock_guard lock(mutex_);
  ++call_;
  for (int p = 1; p < processes_; ++p) send(p, {{.kind = LetterHead::Kind::call, .run = run_, .number = call_}, bytes});
}

void ProcessMail::fail_call(const std::string& words) {
  const std::lock_guard lock(mutex_);
  send(0, {{.kind = LetterHead::Kind::failed, .run = run_, .number = call_}, words});
}

std::optional<std::string> ProcessMail::next_call() {
  return wait([&]() -> std::optional<std::optional<std::string>> {
    if (!calls_.empty()) {
      const LetterHead head = calls_.front().head;
      std::string bytes = std::move(calls_.front().body);
      calls_.pop_front();
      call_ = head.number;
      if (head.run != run_) fail(ErrorCode::internal, "process {} has made {} runs before call {}, and process 0 {}", process_, run_, call_, head.run);
      return std::optional<std::string>(std::move(bytes));
    }
    if (gone_[0]) return std::optional<std::optional<std::string>>(std::in_place, std::nullopt);
    return {};
  });
}

}  // namespace lockstep
