// Compute copies whose changed elements are set have the bits of ones that are made from the whole new tensors: of every family, in bf16 and fp32, whole
// and as each rank's share, and what is read back for a file is the file's bytes.
#include "model/weight_changes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/philox.h"
#include "model/archs/registry.h"
#include "model/runtime.h"
#include "model/sharding.h"
#include "model/tensor_parts.h"

namespace lockstep {
namespace {

std::shared_ptr<const Model> changed_model(const std::string& family) {
  return make_model(Json::parse(std::ifstream(LOCKSTEP_SOURCE_DIR "/tests/golden/" + family + "/ranks.json")));
}

std::vector<std::string> changed_families() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.push_back(family.model_type);
  return names;
}

// Weights before and after a step: of each file's tensor about one element in 50 changed, the first and the last among them, and of every fifth tensor all.
// Among the new numbers are zeros of both signs, infinities, a NaN and a denormal; all are exact in bf16 where the profile computes in it.
struct TwoSteps {
  TwoSteps(const Manifest& manifest, const Profile& profile) : before(initial_weights(manifest, 3, 0.25)) {
    for (const Parameter& p : manifest.parameters())
      if (compute_dtype(p, profile) == DType::bf16)
        for (float& value : before[static_cast<std::size_t>(&p - manifest.parameters().data())]) value = widen(round_to_bf16(value));
    after = before;
    RandomSequence random(9, RandomStream::fuzz);
    const std::vector<std::uint32_t> special = {0x80000000u, 0u, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0x00010000u};
    std::size_t number = 0;
    for (const FileTensor& file : manifest.files()) {
      std::vector<float> values(static_cast<std::size_t>(file.size()));
      manifest.gather(file, after, values.data());
      const bool all = number++ % 5 == 4;
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (!all && i != 0 && i + 1 != values.size() && random.below(50) != 0) continue;
        const std::uint32_t drawn = random.below(8) == 0 ? special[random.below(static_cast<std::uint32_t>(special.size()))] : random.below(0xffffffffu);
        values[i] = bits_float(drawn & 0xffff0000u);
        if ((drawn & 0x7fffffffu) > 0x7f800000u) values[i] = bits_float(0x7fc00000u);
      }
      manifest.scatter(file, values.data(), after);
    }
  }
  WeightImages before, after;
};

DType type_in_file(const Manifest& manifest, const Profile& profile, const FileTensor& file) {
  for (const Piece& piece : file.pieces)
    if (compute_dtype(manifest.parameter(piece.parameter), profile) != DType::bf16) return DType::f32;
  return DType::bf16;
}

std::vector<std::uint32_t> row_major(const Manifest& manifest, const FileTensor& file, const WeightImages& images, DType type) {
  std::vector<float> values(static_cast<std::size_t>(file.size()));
  manifest.gather(file, images, values.data());
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(type == DType::bf16 ? round_to_bf16(value).bits : float_bits(value));
  return bits;
}

using SomeChanges = std::map<ParameterId, ParameterChanges>;

// What the files of the two steps say of each other.
SomeChanges changes_of(const Manifest& manifest, const Profile& profile, const TwoSteps& steps) {
  SomeChanges changes;
  for (const FileTensor& file : manifest.files()) {
    const DType type = type_in_file(manifest, profile, file);
    const std::vector<std::uint32_t> before = row_major(manifest, file, steps.before, type), after = row_major(manifest, file, steps.after, type);
    std::vector<std::int64_t> positions;
    std::vector<std::uint32_t> bits;
    for (std::size_t i = 0; i < before.size(); ++i)
      if (before[i] != after[i]) positions.push_back(static_cast<std::int64_t>(i)), bits.push_back(after[i]);
    add_changes(manifest, profile, file, type, positions, bits, changes);
  }
  return changes;
}

std::size_t different_words(Backend& backend, const WeightSet& a, const WeightSet& b) {
  std::size_t different = 0;
  for (std::size_t i = 0; i < a.parameters.size(); ++i) {
    if (a.parameters[i].view().size() == 0) continue;
    const ParameterBits x = read_bits(backend, a.parameters[i]), y = read_bits(backend, b.parameters[i]);
    EXPECT_EQ(x.words.size(), y.words.size());
    for (std::size_t w = 0; w < x.words.size(); ++w) different += x.words[w] != y.words[w];
  }
  return different;
}

void apply(Backend& backend, const WeightSet& to, const SomeChanges& changes) {
  for (const auto& [id, some] : changes) write_changes(backend, to.parameters[static_cast<std::size_t>(id)], some);
}

std::string read_in_parts(Runtime& runtime, const WeightSet& weights, const FileTensor& file, DType type, std::int64_t most) {
  const TensorParts parts(runtime.model->manifest(), file, type, most);
  std::string bytes;
  std::vector<char> scratch;
  for (std::size_t i = 0; i < parts.count(); ++i) {
    EXPECT_EQ(parts.first(i) * parts.width(), std::ssize(bytes));
    EXPECT_LE(parts.elements(i), parts.most_elements());
    std::string part(static_cast<std::size_t>(parts.elements(i) * parts.width()), '?');
    parts.read(runtime.backend.device(), weights.parameters, i, part.data(), scratch);
    bytes += part;
  }
  return bytes;
}

class WeightChangesOf : public testing::TestWithParam<std::string> {};

TEST_P(WeightChangesOf, ACopyHasTheBitsOfOneThatIsMadeFromTheWhole) {
  for (const char* profile_name : {"cpu-bf16w", "cpu-f32"}) {
    SCOPED_TRACE(profile_name);
    Runtime runtime({.threads = 1}, changed_model(GetParam()), profile_by_name(profile_name), 64);
    const Manifest& manifest = runtime.model->manifest();
    const TwoSteps steps(manifest, runtime.profile);
    const SomeChanges changes = changes_of(manifest, runtime.profile, steps);
    const auto copy = make_weight_set(runtime.backend, manifest, steps.before, runtime.profile, 1);
    const auto want = make_weight_set(runtime.backend, manifest, steps.after, runtime.profile, 2);
    EXPECT_GT(different_words(runtime.backend, *copy, *want), 0);
    apply(runtime.backend, *copy, changes);
    EXPECT_EQ(different_words(runtime.backend, *copy, *want), 0);
    for (const FileTensor& file : manifest.files())
      for (const DType type : {DType::bf16, DType::f32}) {
        std::string wanted;
        for (const std::uint32_t word : row_major(manifest, file, steps.after, type))
          wanted.append(reinterpret_cast<const char*>(&word), static_cast<std::size_t>(element_size(type, false)));
        for (const std::int64_t most : {std::int64_t{1}, TensorParts::kElements})
          EXPECT_EQ(read_in_parts(runtime, *copy, file, type, most), wanted) << file.name;
      }
    // The control: a unit in the last place of one element.
    SomeChanges one;
    one[0].add(0, static_cast<std::uint32_t>(read_bits(runtime.backend, copy->parameters[0]).words[0] ^ 1));
    apply(runtime.backend, *copy, one);
    EXPECT_EQ(different_words(runtime.backend, *copy, *want), 1);
  }
}

TEST_P(WeightChangesOf, ARankTakesItsShare) {
  for (const char* profile_name : {"cpu-bf16w", "cpu-f32"})
    for (const RankLayout& layout : {RankLayout{2, 1, 1}, RankLayout{3, 1, 1}, RankLayout{1, 1, 2}, RankLayout{2, 1, 2}, RankLayout{1, 1, 1, 2}}) {
      Runtime runtime({.threads = 1}, changed_model(GetParam()), profile_by_name(profile_name), 64);
      const Manifest& manifest = runtime.model->manifest();
      const TwoSteps steps(manifest, runtime.profile);
      const SomeChanges changes = changes_of(manifest, runtime.profile, steps);
      for (int rank = 0; rank < layout.size(); ++rank) {
        SCOPED_TRACE(fmt::format("{}, {}, rank {}", profile_name, layout.text(), rank));
        const Sharding sharding(*runtime.model, runtime.profile, RankPlace{.layout = layout, .rank = rank}, HeadStage::first);
        const auto share = make_weight_set(runtime.backend, sharding.manifest(), shares_of(sharding, steps.before), runtime.profile, 1);
        const auto want = make_weight_set(runtime.backend, sharding.manifest(), shares_of(sharding, steps.after), runtime.profile, 2);
        EXPECT_EQ(different_words(runtime.backend, *share, *want) > 0, trained_size(sharding.manifest()) > 0);  // a stage may have nothing
        SomeChanges own;
        for (const auto& [id, some] : changes) own[id] = share_of(manifest, sharding, id, some);
        apply(runtime.backend, *share, own);
        EXPECT_EQ(different_words(runtime.backend, *share, *want), 0);
      }
    }
}
INSTANTIATE_TEST_SUITE_P(Families, WeightChangesOf, testing::ValuesIn(changed_families()));

TEST(WeightChanges, EveryDeviceSetsTheSameBits) {
  for (const BackendKind kind : {BackendKind::deferred, BackendKind::emulated}) {
    Runtime runtime({.kind = kind, .threads = 2}, changed_model("glm_moe_dsa"), profile_by_name("cpu-bf16w"), 64);
    const Manifest& manifest = runtime.model->manifest();
    const TwoSteps steps(manifest, runtime.profile);
    const auto copy = make_weight_set(runtime.backend, manifest, steps.before, runtime.profile, 1);
    apply(runtime.backend, *copy, changes_of(manifest, runtime.profile, steps));
    EXPECT_EQ(different_words(runtime.backend, *copy, *make_weight_set(runtime.backend, manifest, steps.after, runtime.profile, 2)), 0);
  }
}

TEST(WeightChanges, TypesOfAFileAreConvertedAsAnUploadDoes) {
  Manifest manifest;
  const ParameterId matrix = manifest.matrix("a", 3, 5), state = manifest.untrained_vector("b", 4);
  const Profile profile = profile_by_name("cpu-bf16w");
  Backend backend({.threads = 1});
  const auto set =
      make_weight_set(backend, manifest, {std::vector<float>(static_cast<std::size_t>(manifest.parameter(matrix).size()), 1.0f), {1, 2, 3, 4}}, profile, 1);
  SomeChanges changes;
  const std::vector<std::int64_t> positions = {1};
  add_changes(manifest, profile, manifest.files()[0], DType::f32, positions, std::vector<std::uint32_t>{float_bits(1.23456f)}, changes);
  add_changes(manifest, profile, manifest.files()[1], DType::bf16, positions, std::vector<std::uint32_t>{round_to_bf16(2.5f).bits}, changes);
  apply(backend, *set, changes);
  const std::vector<float> a = backend.stream().read(set->parameters[static_cast<std::size_t>(matrix)].view()).get();
  EXPECT_EQ(a[static_cast<std::size_t>(manifest.parameter(matrix).offset(0, 0, 1))], widen(round_to_bf16(1.23456f)));
  EXPECT_EQ(backend.stream().read(set->parameters[static_cast<std::size_t>(state)].view()).get(), (std::vector<float>{1, 2.5f, 3, 4}));
}

TEST(WeightChanges, APositionThatATensorHasNotIsRefusedBeforeAnythingIsAdded) {
  Manifest manifest;
  manifest.matrix("a", 3, 5);
  const FileTensor& file = manifest.files()[0];
  SomeChanges changes;
  const auto refused = [&](const std::vector<std::int64_t>& positions) {
    try {
      add_changes(manifest, profile_by_name("cpu-bf16w"), file, DType::bf16, positions, std::vector<std::uint32_t>(positions.size(), 1), changes);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused({2, 15}), "tensor 'a' of 15 elements changes at 15; allowed are ascending positions from 3 to 14");
  EXPECT_NE(refused({-1}), "");
  EXPECT_NE(refused({4, 4}), "");
  EXPECT_NE(refused({4, 3}), "");
  EXPECT_TRUE(changes.empty());
  EXPECT_EQ(refused({0, 14}), "");
  EXPECT_EQ(changes.at(0).count(), 2);
}

TEST(WeightChanges, AQuantisedTensorIsRefused) {
  Manifest manifest;
  manifest.matrix("a", 32, 64);
  SomeChanges changes;
  EXPECT_THROW(add_changes(manifest, profile_by_name("cpu-int4-base"), manifest.files()[0], DType::bf16, std::vector<std::int64_t>{1},
                           std::vector<std::uint32_t>{1}, changes),
               Error);
  EXPECT_TRUE(changes.empty());
}

// More changes than go to the device at once, and places beyond 31 bits.
TEST(WeightChanges, ManyAndFarOnesStandInBlocks) {
  ParameterChanges changes;
  const std::int64_t far = std::int64_t{5} << 30;
  for (std::int64_t i = 0; i < (std::int64_t{1} << 20) + 7; ++i) changes.add(i, static_cast<std::uint32_t>(i));
  changes.add(far + 3, 9);
  changes.add(2'000'000, 8);
  EXPECT_EQ(changes.count(), (std::int64_t{1} << 20) + 9);
  ASSERT_EQ(changes.blocks().size(), 3);
  EXPECT_EQ(changes.blocks()[2].first, far);
  std::int64_t seen = 0;
  changes.each([&](std::int64_t offset, std::uint32_t bits) { seen += offset == far + 3 ? bits == 9 : offset == 2'000'000 ? bits == 8 : offset == bits; });
  EXPECT_EQ(seen, changes.count());
}

}  // namespace
}  // namespace lockstep
