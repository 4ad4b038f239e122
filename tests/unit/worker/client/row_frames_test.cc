// Goal: the rows of a message lie in it as proto/parameter_server.proto says,
// without a copy where none is needed, and an answer with other rows changes
// nothing. Method: batches of two tables, read back byte by byte.

#include "worker/client/row_frames.h"

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "common/base/element_type.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr float kUnset = -1;

class RowFramesTest : public ::testing::Test {
 protected:
  RowFramesTest() : a_(MakeRows(/*dim=*/2, 5)), b_(MakeRows(/*dim=*/3, 40)) {}

  // A batch that reads the keys 0 to `ids` - 1, all on one shard. The gradient
  // of the row i is 10 i, 10 i + 1, ...; values are kUnset.
  static std::unique_ptr<RowBatch> MakeRows(int64_t dim, int64_t ids) {
    RowBatch::Options options;
    options.name = "t";
    options.dim = dim;
    options.samples_max = 1;
    options.lookups = {{.feed = 0, .ids_per_sample = ids}};
    options.with_gradients = true;
    auto rows = std::make_unique<RowBatch>(options, *TableMap::Create(256, 1));
    Batch batch;
    batch.size = 1;
    batch.int_feeds.resize(1);
    for (int64_t i = 0; i < ids; ++i) batch.int_feeds[0].push_back(i);
    rows->Collect(batch);
    rows->ClearGradients();
    for (int64_t i = 0; i < ids; ++i) {
      float* const gradient = rows->row_gradients() + (1 + i) * dim;
      std::iota(gradient, gradient + dim, 10.0f * static_cast<float>(i));
      std::fill_n(rows->value(static_cast<size_t>(i)), dim, kUnset);
    }
    return rows;
  }

  std::vector<RowBatch*> tables() { return {a_.get(), b_.get()}; }

  // Rows 1 and 2 of the first table, rows 7 to 9 of the second one.
  static RowChunk Chunk(ElementType type) {
    return {.shard = 0, .type = type, .ranges = {{0, 1, 2}, {1, 7, 3}}};
  }

  // The rows that `chunk` names, as a ps answers with them.
  static PullResponseHeader Answer(const RowChunk& chunk, int64_t clock) {
    PullResponseHeader header;
    header.set_min_clock(clock);
    for (const TableRowSpan& range : chunk.ranges) {
      TableRows* const rows = header.add_tables();
      rows->set_table(range.table);
      rows->set_rows(range.count);
    }
    return header;
  }

  const std::unique_ptr<RowBatch> a_, b_;
  const std::shared_ptr<const void> owner_ = std::make_shared<int>(0);
};

template <typename T>
std::vector<T> NumbersOf(const grpc::Slice& slice) {
  std::vector<T> numbers(slice.size() / sizeof(T));
  std::memcpy(numbers.data(), slice.begin(), slice.size());
  return numbers;
}

// Numbers of `type` from 1, in slices of seven bytes, which straddle them.
PayloadView Payload(ElementType type, size_t count) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 1.0f);
  std::string bytes(count * ElementBytes(type), '\0');
  if (type == ElementType::kFloat32) {
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
  } else {
    Narrow(type, numbers.data(), reinterpret_cast<uint8_t*>(bytes.data()),
           count);
  }
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += 7) {
    slices.emplace_back(bytes.substr(at, 7));
  }
  return PayloadView(std::move(slices));
}

TEST_F(RowFramesTest, GradientsAreKeysThenNumbersByTable) {
  PushHeader header;
  std::vector<grpc::Slice> payload;
  AddGradients(tables(), Chunk(ElementType::kFloat32), owner_, &header,
               &payload);
  ASSERT_EQ(header.tables_size(), 2);
  EXPECT_EQ(header.tables(0).table(), 0u);
  EXPECT_EQ(header.tables(0).rows(), 2u);
  EXPECT_EQ(header.tables(1).table(), 1u);
  EXPECT_EQ(header.tables(1).rows(), 3u);

  ASSERT_EQ(payload.size(), 4u);
  EXPECT_THAT(NumbersOf<int64_t>(payload[0]),
              ElementsAreArray(a_->keys().subspan(1, 2)));
  EXPECT_THAT(NumbersOf<float>(payload[1]),
              ElementsAreArray({10.0f, 11.0f, 20.0f, 21.0f}));
  EXPECT_THAT(NumbersOf<int64_t>(payload[2]),
              ElementsAreArray(b_->keys().subspan(7, 3)));
  EXPECT_EQ(NumbersOf<float>(payload[3]).front(), 70.0f);
  EXPECT_EQ(NumbersOf<float>(payload[3]).back(), 92.0f);
}

// As a routing makes them that leaves slots between to other shards.
TEST_F(RowFramesTest, RangesOfOneTableAreOneListOfRows) {
  const RowChunk chunk = {.shard = 0,
                          .type = ElementType::kFloat32,
                          .ranges = {{0, 1, 1}, {1, 2, 1}, {1, 5, 2}}};
  PushHeader push;
  std::vector<grpc::Slice> payload;
  AddGradients(tables(), chunk, owner_, &push, &payload);
  ASSERT_EQ(push.tables_size(), 2);
  EXPECT_EQ(push.tables(1).rows(), 3u);
  ASSERT_EQ(payload.size(), 6u) << "all keys of a table come first";
  EXPECT_EQ(NumbersOf<int64_t>(payload[2])[0], b_->keys()[2]);
  EXPECT_EQ(NumbersOf<int64_t>(payload[3])[1], b_->keys()[6]);
  EXPECT_EQ(NumbersOf<float>(payload[4])[0], 20.0f);
  EXPECT_EQ(NumbersOf<float>(payload[5])[3], 60.0f);

  PullHeader pull;
  payload.clear();
  AddWantedKeys(tables(), chunk, owner_, &pull, &payload);
  ASSERT_EQ(pull.tables_size(), 2);
  EXPECT_EQ(pull.tables(1).rows(), 3u);
  EXPECT_EQ(payload.size(), 3u);

  PullResponseHeader answer;
  *answer.mutable_tables() = pull.tables();
  const size_t count = 2 + 3 * 3;
  ASSERT_TRUE(
      StoreRows(tables(), chunk, answer, Payload(ElementType::kFloat32, count))
          .ok());
  EXPECT_EQ(b_->value(2)[0], 3);
  EXPECT_EQ(b_->value(5)[0], 6);
  EXPECT_EQ(b_->value(6)[2], 11);
  answer.mutable_tables(1)->set_rows(1);
  EXPECT_FALSE(
      StoreRows(tables(), chunk, answer, Payload(ElementType::kFloat32, count))
          .ok());
}

TEST_F(RowFramesTest, WholeNumbersAreNotCopiedAndTheirOwnerIsKept) {
  PushHeader header;
  std::vector<grpc::Slice> payload;
  AddGradients(tables(), Chunk(ElementType::kFloat32), owner_, &header,
               &payload);
  EXPECT_EQ(static_cast<const void*>(payload[1].begin()), a_->gradient(1));
  EXPECT_EQ(owner_.use_count(), 5);
  payload.clear();
  EXPECT_EQ(owner_.use_count(), 1);
}

TEST_F(RowFramesTest, NumbersOf16BitsAreNarrowed) {
  PushHeader header;
  std::vector<grpc::Slice> payload;
  AddGradients(tables(), Chunk(ElementType::kFloat16), owner_, &header,
               &payload);
  const std::vector<uint16_t> narrow = NumbersOf<uint16_t>(payload[1]);
  std::vector<float> wide(narrow.size());
  Widen(ElementType::kFloat16, narrow.data(), wide.data(), narrow.size());
  EXPECT_THAT(wide, ElementsAreArray({10.0f, 11.0f, 20.0f, 21.0f}));
}

TEST_F(RowFramesTest, APullListsTheWantedKeys) {
  b_->WantOnly([](size_t i) { return i % 2 == 1; });
  const RowChunk chunk = {
      .shard = 0, .type = ElementType::kBfloat16, .ranges = {{1, 3, 2}}};
  PullHeader header;
  std::vector<grpc::Slice> payload;
  AddWantedKeys(tables(), chunk, owner_, &header, &payload);
  ASSERT_EQ(header.tables_size(), 1);
  EXPECT_EQ(header.tables(0).table(), 1u);
  EXPECT_EQ(header.tables(0).rows(), 2u);
  ASSERT_EQ(payload.size(), 1u);
  EXPECT_THAT(NumbersOf<int64_t>(payload[0]),
              ElementsAreArray({b_->keys()[7], b_->keys()[9]}));
  EXPECT_EQ(ValueBytes(tables(), chunk), 2 * 3 * sizeof(uint16_t));
}

TEST_F(RowFramesTest, ValuesGoToTheirRowsWithTheClock) {
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBfloat16}) {
    b_->WantOnly([](size_t i) { return i != 8; });
    // The wanted rows 6 to 8 are the rows 6, 7 and 9.
    const RowChunk chunk = {
        .shard = 0, .type = type, .ranges = {{0, 4, 1}, {1, 6, 3}}};
    const size_t count = ValueBytes(tables(), chunk) / ElementBytes(type);
    ASSERT_EQ(count, 2u + 9u);
    ASSERT_TRUE(StoreRows(tables(), chunk, Answer(chunk, /*clock=*/12),
                          Payload(type, count))
                    .ok());
    EXPECT_EQ(a_->value(4)[0], 1);
    EXPECT_EQ(a_->value(4)[1], 2);
    EXPECT_EQ(b_->value(6)[0], 3);
    EXPECT_EQ(b_->value(7)[2], 8);
    EXPECT_EQ(b_->value(8)[0], kUnset);
    EXPECT_EQ(b_->value(9)[0], 9);
    EXPECT_EQ(b_->value(9)[2], 11);
    EXPECT_EQ(a_->as_of(4), 12);
    EXPECT_EQ(b_->as_of(9), 12);
  }
}

TEST_F(RowFramesTest, AnAnswerWithOtherRowsChangesNothing) {
  const RowChunk chunk = Chunk(ElementType::kFloat32);
  const size_t count = 2 * 2 + 3 * 3;
  const auto expect_refused = [&](const PullResponseHeader& header,
                                  size_t numbers) {
    const absl::Status stored = StoreRows(
        tables(), chunk, header, Payload(ElementType::kFloat32, numbers));
    EXPECT_EQ(stored.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(stored.message()), HasSubstr("expected 2 with 52"));
  };
  expect_refused(Answer(chunk, 1), count - 1);
  expect_refused(Answer(chunk, 1), count + 1);
  PullResponseHeader other = Answer(chunk, 1);
  other.mutable_tables(1)->set_rows(2);
  expect_refused(other, count);
  other = Answer(chunk, 1);
  other.mutable_tables(1)->set_table(2);
  expect_refused(other, count);
  other = Answer(chunk, 1);
  other.mutable_tables()->RemoveLast();
  expect_refused(other, count);
  EXPECT_THAT(absl::MakeConstSpan(a_->value(0), 5 * 2), Each(kUnset));
}

}  // namespace
}  // namespace syncline::worker
