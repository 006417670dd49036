#include "parity/rank_check.h"

#include <unistd.h>

#include <algorithm>

#include "base/byte_record.h"
#include "base/error.h"
#include "base/hash.h"
#include "numerics/profile.h"

namespace lockstep {

namespace {

void put_digests(ByteWriter& out, const std::vector<OperationDigest>& digests) {
  out.value(static_cast<std::uint64_t>(digests.size()));
  for (const OperationDigest& one : digests) out.text(one.what), out.value(one.digest);
}

std::vector<OperationDigest> taken_digests(ByteReader& in) {
  std::vector<OperationDigest> digests(in.value<std::uint64_t>());
  for (OperationDigest& one : digests) one.what = in.text(), one.digest = in.value<std::uint64_t>();
  return digests;
}

// The names of operations are the program's, and are not sent but for one digest of all.
std::uint64_t digest_of_names(const std::vector<OperationDigest>& operations) {
  std::uint64_t hash = 0;
  for (const OperationDigest& one : operations) hash = xxh3(one.what.data(), one.what.size(), hash);
  return hash;
}

void put_bits(ByteWriter& out, const std::vector<OperationDigest>& bits) {
  std::vector<std::uint64_t> digests;
  for (const OperationDigest& one : bits) digests.push_back(one.digest);
  out.value(digest_of_names(bits)), out.values(digests);
}

std::vector<OperationDigest> taken_bits(ByteReader& in, const std::vector<OperationDigest>& own) {
  const bool alike = in.value<std::uint64_t>() == digest_of_names(own);
  std::vector<OperationDigest> bits;
  for (const std::uint64_t digest : in.values<std::uint64_t>())
    bits.push_back({alike ? own[bits.size()].what : fmt::format("operation {} of another program", bits.size()), digest});
  return bits;
}

// What all ranks of a process share is sent by the first of them.
std::string bytes_of_facts(const RankFacts& facts, bool first) {
  ByteWriter out;
  out.value(facts.rank), out.value(facts.process), out.value(first);
  if (!first) return out.take();
  out.text(facts.host), out.value(facts.pid), out.value(facts.threads), out.text(facts.instruction_set), out.text(facts.program);
  put_digests(out, facts.profiles), put_bits(out, facts.bits);
  out.value(static_cast<std::uint64_t>(facts.files.size()));
  for (const FileDigest& file : facts.files) out.text(file.name), out.value(file.bytes), out.value(file.digest);
  return out.take();
}

// `all`: of the ranks before it.
RankFacts facts_of(const std::string& bytes, const std::vector<OperationDigest>& own, const std::vector<RankFacts>& all) {
  ByteReader in(bytes);
  const int rank = in.value<int>(), process = in.value<int>();
  RankFacts facts;
  if (in.value<bool>()) {
    facts.host = in.text(), facts.pid = in.value<std::int64_t>(), facts.threads = in.value<std::int64_t>();
    facts.instruction_set = in.text(), facts.program = in.text();
    facts.profiles = taken_digests(in), facts.bits = taken_bits(in, own);
    facts.files.resize(in.value<std::uint64_t>());
    for (FileDigest& file : facts.files) file.name = in.text(), file.bytes = in.value<std::int64_t>(), file.digest = in.value<std::uint64_t>();
  } else {
    facts = all.back();
  }
  facts.rank = rank, facts.process = process;
  return facts;
}

std::vector<OperationDigest> digests_of_profiles() {
  std::vector<OperationDigest> all;
  for (const Profile& profile : profiles()) all.push_back({profile.name, std::stoull(profile.digest(), nullptr, 16)});
  return all;
}

// Each process computes once, and its ranks have that.
std::vector<RankFacts> facts_of_ranks(Ranks& ranks, const RankCheckSettings& settings) {
  RankFacts own{.process = ranks.process(), .host = ranks.host(), .pid = ::getpid(), .threads = settings.threads, .program = settings.program};
  own.instruction_set = instruction_set_name(settings.isa);
  own.profiles = digests_of_profiles();
  ranks.run([&](int local) {
    if (local > 0) return;
    own.bits = settings.compute(settings.isa, settings.threads);
    if (!settings.model.empty()) own.files = folder_digests(settings.model);
  });
  std::vector<RankFacts> all;
  ranks.run([&](int local) {
    RankFacts mine = own;
    mine.rank = ranks.place(local).rank;
    const std::vector<std::string> told = ranks.place(local).world->gather_host(bytes_of_facts(mine, local == 0));
    if (local == 0)
      for (const std::string& record : told) all.push_back(facts_of(record, own.bits, all));
  });
  return all;
}

}  // namespace

std::string RankFacts::name() const { return fmt::format("rank {} (process {}, host {})", rank, process, host); }

bool RankCheck::fit() const {
  return std::none_of(findings.begin(), findings.end(), [](const Finding& finding) { return finding.level == Finding::Level::problem; });
}

RankCheck check_ranks(Ranks& ranks, const RankCheckSettings& settings) {
  if (ranks.size() < 2)
    fail(ErrorCode::invalid_argument, "ranks is {}, which is one; allowed are 2 and more, whose bits and links can be compared", ranks.layout().text());
  const auto say = [&](const std::string& sentence) {
    if (settings.say && ranks.process() == 0) settings.say(sentence);
  };
  say("each host computes the forward, the gradient and a step of a small model");
  if (!settings.model.empty()) say(fmt::format("and reads '{}'", settings.model));
  RankCheck check;
  check.ranks = facts_of_ranks(ranks, settings);
  if (settings.links) {
    say(fmt::format("links between ranks are measured: {} of them", measured_links(ranks.size()).size()));
    LinkSettings measure = settings.measure;
    measure.name = [&](int rank) { return check.ranks[static_cast<std::size_t>(rank)].name(); };
    check.links = measure_links(ranks, measure);
  }
  check.findings = judge_ranks(ranks.layout(), check.ranks, check.links, settings.model);
  return check;
}

}  // namespace lockstep
