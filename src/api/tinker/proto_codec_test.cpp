#include "api/tinker/proto_codec.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "api/tinker/sparse.h"

namespace lockstep {
namespace {

TEST(SparseMatrices, BecomeDense) {
  EXPECT_EQ(dense_of_csr<float>({1, 2, 3}, {0, 1, 1, 3}, {2, 0, 1}, {3, 3}, "w"), (std::vector<float>{0, 0, 1, 0, 0, 0, 2, 3, 0}));
}

// Any indices at all: a matrix or one error, never a write elsewhere (the sanitizers see to that).
RC_GTEST_PROP(SparseMatrices, AnyIndicesAreAMatrixOrAnError, ()) {
  const auto numbers = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(-3, 6));
  const auto columns = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(-2, 5));
  const std::vector<std::int64_t> shape{*rc::gen::inRange<std::int64_t>(0, 4), *rc::gen::inRange<std::int64_t>(0, 4)};
  try {
    const auto dense = dense_of_csr<float>(std::vector<float>(columns.size(), 1.0f), numbers.empty() ? std::vector<std::int64_t>{0} : numbers, columns, shape, "w");
    RC_ASSERT(static_cast<std::int64_t>(dense.size()) == shape[0] * shape[1]);
  } catch (const Error& e) {
    RC_ASSERT(e.code() == ErrorCode::invalid_argument);
  }
}

TEST(SparseMatrices, MayNotGrowBeyondTheMessagesRoom) {
  DenseRoom room;
  room.take(std::int64_t{1} << 25, "a");
  room.take(std::int64_t{1} << 25, "b");
  EXPECT_THROW(room.take(1, "c"), Error);
}

TEST(ProtoCodec, BytesThatAreNoMessageAreOneError) {
  EXPECT_THROW(decode_batch("\xff\xff\xff\xff\xff"), Error);
}

TEST(ProtoCodec, TextThatIsNotUtf8IsAnErrorAndNoLineOnStderr) {
  testing::internal::CaptureStderr();
  EXPECT_THROW(decode_batch("\x0a\x02\xc3\x28"), Error);  // model_id
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

RC_GTEST_PROP(ProtoCodec, AnyBytesAreAMessageOrAnError, ()) {
  const auto bytes = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
  try {
    decode_batch(bytes);
  } catch (const Error& e) {
    RC_ASSERT(e.code() == ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace lockstep
