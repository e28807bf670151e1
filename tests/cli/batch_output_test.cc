// The answers of a batch on their way to a file.
#include "services/cli/batch_output.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/wire/client_codec.h"
#include "tests/support/temp_folder.h"

namespace foretoken::cli {
namespace {

using testing::HasSubstr;

const RequestId kFirst{.high = 1, .low = 1}, kSecond{.high = 1, .low = 2},
    kElsewhere{.high = 9, .low = 9};

std::string answer_to(RequestId line) { return R"({"id": ")" + wire::hex_of(line) + R"("})"; }

class BatchOutputs : public testing::Test {
 protected:
  Result<BatchOutput> opened(const std::vector<RequestId>& ids) {
    return BatchOutput::open(file_, ids, BatchOutput::Failed::kKeep);
  }
  // A run that ends before its second line is answered.
  void interrupt(RequestId answered) {
    auto output = opened({answered, kSecond});
    ASSERT_TRUE(output.ok());
    ASSERT_TRUE(output->add(0, answer_to(answered), false).ok());
  }
  static std::string text_of(const std::string& path) { return *read_text_file(path, 1 << 20); }

  const test::TempFolder folder_;
  const std::string file_ = (folder_ / "answers.jsonl").string(), part_ = file_ + ".part";
};

TEST_F(BatchOutputs, GoOnWhereAnInterruptedRunEnded) {
  interrupt(kFirst);
  auto output = opened({kSecond, kFirst});
  ASSERT_TRUE(output.ok());
  EXPECT_TRUE(output->is_done(1));
  EXPECT_FALSE(output->is_done(0));
  ASSERT_TRUE(output->add(0, answer_to(kSecond), false).ok());
  ASSERT_TRUE(output->finish().ok());
  EXPECT_EQ(answer_to(kSecond) + "\n" + answer_to(kFirst) + "\n", text_of(file_));
  EXPECT_FALSE(std::filesystem::exists(part_));
}

TEST_F(BatchOutputs, SayWhichLinesFailedInThisRunAndBefore) {
  const std::string failure = R"({"id": ")" + wire::hex_of(kFirst) + R"(", "error": {}})";
  ASSERT_TRUE(opened({kFirst, kSecond})->add(0, failure, true).ok());
  auto output = opened({kSecond, kFirst});
  ASSERT_TRUE(output.ok());
  EXPECT_FALSE(output->has_failed(0)) << "it is not done";
  EXPECT_TRUE(output->has_failed(1));
  ASSERT_TRUE(output->add(0, answer_to(kSecond), false).ok());
  EXPECT_FALSE(output->has_failed(0));
}

TEST_F(BatchOutputs, RefuseThePartOfARunWithOtherFlags) {
  interrupt(kElsewhere);
  const std::string before = text_of(part_);
  const auto output = opened({kFirst, kSecond});
  ASSERT_FALSE(output.ok());
  EXPECT_EQ(ErrorCode::kConfig, output.error().code);
  EXPECT_THAT(output.error().message, HasSubstr(part_ + " is there from an interrupted run"));
  EXPECT_EQ(before, text_of(part_));
  EXPECT_TRUE(opened({kElsewhere}).ok());  // with its own flags it goes on
}

TEST_F(BatchOutputs, RefuseThePartOfARunWithOtherFlagsBesideAFinishedFile) {
  {
    auto output = opened({kFirst});
    ASSERT_TRUE(output->add(0, answer_to(kFirst), false).ok());
    ASSERT_TRUE(output->finish().ok());
  }
  {
    auto output = opened({kFirst, kElsewhere});
    ASSERT_TRUE(output->add(1, answer_to(kElsewhere), false).ok());
  }
  const std::string before = text_of(part_);
  EXPECT_FALSE(opened({kFirst, kSecond}).ok());
  EXPECT_EQ(before, text_of(part_));
}

TEST_F(BatchOutputs, LeaveOutTheAnswersToLinesThatWereRemoved) {
  interrupt(kElsewhere);
  ASSERT_TRUE(opened({kElsewhere, kFirst})->add(1, answer_to(kFirst), false).ok());
  const auto output = opened({kFirst, kSecond});
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(1U, output->n_strange());
  EXPECT_EQ(1U, output->n_done());
}

TEST_F(BatchOutputs, RefuseAFinishedFileOfOtherLines) {
  folder_.write("answers.jsonl", answer_to(kElsewhere) + "\n");
  const auto output = opened({kFirst});
  ASSERT_FALSE(output.ok());
  EXPECT_THAT(output.error().message, HasSubstr(file_ + " exists already"));
  EXPECT_FALSE(std::filesystem::exists(part_));
}

}  // namespace
}  // namespace foretoken::cli
