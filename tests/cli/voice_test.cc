// When the command has colours, and what they change: nothing but the sequences around words.
#include "services/cli/voice.h"

#include <gtest/gtest.h>

#include <iostream>
#include <sstream>

namespace foretoken::cli {
namespace {

TEST(Colors, AreForTerminalsUnlessOneSaysOtherwise) {
  using enum ColorWhen;
  EXPECT_TRUE(wants_colors({kAuto, true, nullptr, "xterm"}));
  EXPECT_TRUE(wants_colors({kAuto, true, "", "xterm"})) << "an empty NO_COLOR says nothing";
  EXPECT_FALSE(wants_colors({kAuto, true, "1", "xterm"}));
  EXPECT_FALSE(wants_colors({kAuto, true, "0", "xterm"})) << "whatever its value";
  EXPECT_FALSE(wants_colors({kAuto, true, nullptr, "dumb"}));
  EXPECT_FALSE(wants_colors({kAuto, true, nullptr, nullptr}));
  EXPECT_FALSE(wants_colors({kAuto, false, nullptr, "xterm"}));
  EXPECT_TRUE(wants_colors({kAlways, false, "1", "dumb"})) << "the flag is stronger";
  EXPECT_FALSE(wants_colors({kNever, true, nullptr, "xterm"}));
}

TEST(Colors, AreSaidByTheLineBeforeItIsRead) {
  using enum ColorWhen;
  EXPECT_EQ(kAuto, color_said_in({"ps", "--json"}));
  EXPECT_EQ(kNever, color_said_in({"ps", "--color", "never", "--nonsense"}));
  EXPECT_EQ(kAlways, color_said_in({"ps", "--color=always"}));
  EXPECT_EQ(kAlways, color_said_in({"ps", "--color=never", "--color", "always"}));
  EXPECT_EQ(kAuto, color_said_in({"ps", "--color", "green"}));
  EXPECT_EQ(kAuto, color_said_in({"ps", "--color"}));
  EXPECT_EQ(kAuto, color_said_in({"ps", "--colors=never"}));
  EXPECT_EQ(kAuto, color_said_in({"generate", "--", "--color=never"}));
}

class PaintedErrorsTest : public ::testing::Test {
 public:
  ~PaintedErrorsTest() override {
    set_colors(ColorWhen::kAuto);
    set_verbosity(Verbosity::kUsual);
  }

 protected:
  std::string said(ColorWhen when, const std::vector<std::string>& pieces) {
    set_colors(when);
    std::ostringstream stream;
    const PaintedErrors painted(stream);
    for (const auto& piece : pieces) stream << piece;
    return stream.str();
  }
};

TEST_F(PaintedErrorsTest, PaintsTheWordsThatSentencesBeginWith) {
  EXPECT_EQ("\033[1;31merror:\033[0m no model\n\033[36m  try:\033[0m this\n",
            said(ColorWhen::kAlways, {"error: ", "no model", "\n  try: this\n"}));
  EXPECT_EQ("\r42 %\r\033[K\033[33mnote:\033[0m x\n",
            said(ColorWhen::kAlways, {"\r42 %", "\r\033[K", "note: x\n"}))
      << "behind a bar that was taken away";
  EXPECT_EQ("\033[33mwarning:\033[0m x\n", said(ColorWhen::kAlways, {"warning: x\n"}));
  EXPECT_EQ("an error: this is\n", said(ColorWhen::kAlways, {"an error: this is\n"}));
}

TEST_F(PaintedErrorsTest, WithoutColorsEveryByteIsAsItWas) {
  EXPECT_EQ("error: x\n  try: y\n", said(ColorWhen::kNever, {"error: x", "\n  try: y\n"}));
  set_colors(ColorWhen::kNever);
  EXPECT_EQ("ok", painted_out("ok", Paint::kGood));
}

TEST_F(PaintedErrorsTest, DetailsAreForThoseWhoAsked) {
  std::ostringstream heard;
  std::streambuf* const before = std::cerr.rdbuf(heard.rdbuf());
  say_detail("unheard");
  set_verbosity(Verbosity::kVerbose);
  say_detail("heard");
  std::cerr.rdbuf(before);
  EXPECT_EQ("detail: heard\n", heard.str());
}

TEST_F(PaintedErrorsTest, NotesAndDetailsEraseTheLineThatIsDrawnOverItself) {
  std::ostringstream heard;
  std::streambuf* const before = std::cerr.rdbuf(heard.rdbuf());
  draw_status_line("42 %");
  say_note("one");
  say_note("two");
  draw_status_line("43 %");
  set_verbosity(Verbosity::kVerbose);
  say_detail("three");
  erase_status_line();
  std::cerr.rdbuf(before);
  EXPECT_EQ(
      "\r42 %\033[K\r\033[Knote: one\nnote: two\n"
      "\r43 %\033[K\r\033[Kdetail: three\n",
      heard.str());
}

}  // namespace
}  // namespace foretoken::cli
