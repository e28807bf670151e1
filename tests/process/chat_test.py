"""`foretoken chat` as a person uses it: a pty with real services behind it, and what the screen shows."""
import json
import os
import pathlib
import re
import signal
import subprocess
import termios
import unittest

import harness
from terminal import Terminal

PROGRAM = str(pathlib.Path(harness.BIN).resolve() / "foretoken")


class Chat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.system = harness.System().__enter__()
        cls.addClassCleanup(cls.system.__exit__, None, None, None)
        cls.system.start("router", "tokenizer", "draft", "target").wait_ready()
        cls.home = os.path.join(cls.system.folder, "home")
        os.mkdir(cls.home)

    def environment(self):
        return {"HOME": self.home, "XDG_STATE_HOME": os.path.join(self.home, self.id()), "LANG": "C"}

    def chat(self, *flags, columns=80, rows=24, environment=None):
        command = [PROGRAM, "chat", "--set", f"bus.client={self.system.client}", "-t", "0", *flags]
        terminal = Terminal(command, {**self.environment(), **(environment or {})}, columns, rows)
        self.addCleanup(terminal.__exit__, None, None, None)
        terminal.prompt()
        return terminal

    def ask(self, terminal, keys):
        """Until one answer more has ended: the screen before the echo ends with an answer too."""
        summary = r"\[\d+\s+tokens?, [^\]]*\]"
        n_before = len(re.findall(summary, terminal.text()))
        terminal.type(keys)
        terminal.wait_for(rf"\A(?:.*?{summary}){{{n_before + 1}}}\n>\Z")

    def saved(self, terminal, name):
        """What the chat has as its conversation."""
        path = os.path.join(self.home, name)
        terminal.type(f"/save {path}\r")
        terminal.wait_for(r"saved to [^\n]*\n>\Z")
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))

    def user_texts(self, terminal, name):
        return [m["content"] for m in self.saved(terminal, name)["messages"] if m["role"] == "user"]

    def test_a_line_is_edited_as_in_a_shell(self):
        terminal = self.chat("-n", "4")
        # Home, an insertion, End, a word deleted, a character deleted.
        self.ask(terminal, "thing word\x7f\x01the \x05\x17world!\x7f\r")
        self.assertEqual(["the thing world"], self.user_texts(terminal, "edited"))
        self.assertIn("> the thing world", terminal.lines())

    def test_wide_characters_move_the_cursor_by_their_width(self):
        terminal = self.chat("-n", "4", columns=40)
        terminal.type("漢字🎉é")
        terminal.wait_for("^> 漢")
        while terminal.screen.cursor.x < 9:
            self.assertTrue(terminal.pump(5), terminal.text())
        self.assertEqual(2 + 2 + 2 + 2 + 1, terminal.screen.cursor.x)
        terminal.type("\x1b[D\x1b[D")  # left over é and the emoji
        while terminal.screen.cursor.x != 6:
            self.assertTrue(terminal.pump(5), terminal.text())
        self.ask(terminal, "\x7fx\r")
        self.assertEqual(["漢x🎉é"], self.user_texts(terminal, "wide"))

    def test_what_was_typed_comes_back_with_the_arrow_in_the_next_chat_too(self):
        first = self.chat("-n", "4")
        self.ask(first, "one thing\r")
        self.ask(first, "two things\r")
        self.ask(first, " with a space before it is not kept\r")
        first.type("\x04")
        self.assertEqual(0, first.exit_code())
        second = self.chat("-n", "4")
        second.type("\x1b[A")
        second.wait_for(r"^> two things\Z")
        second.type("\x1b[A")
        second.wait_for(r"^> one thing\Z")
        self.ask(second, "\r")
        self.assertEqual(["one thing"], self.user_texts(second, "again"))
        file = pathlib.Path(self.environment()["XDG_STATE_HOME"]) / "foretoken/chat_history"
        self.assertEqual(0o600, file.stat().st_mode & 0o777)

    def test_no_history_leaves_no_file(self):
        terminal = self.chat("--no-history", "-n", "4")
        self.ask(terminal, "the thing\r")
        terminal.type("\x04")
        self.assertEqual(0, terminal.exit_code())
        self.assertFalse(os.path.exists(self.environment()["XDG_STATE_HOME"]))

    def test_pasted_lines_are_one_entry_and_nothing_in_them_is_a_key(self):
        terminal = self.chat("-n", "4")
        self.assertIn(b"\x1b[?2004h", terminal.raw)
        terminal.type("say: \x1b[200~first\r\n\tsecond\x1b[A\x03\nthird\x1b[201~")
        terminal.wait_for(r"^third")
        self.ask(terminal, "!\r")
        self.assertEqual(["say: first\n\tsecond[A\nthird!"], self.user_texts(terminal, "pasted"))

    def test_a_long_paste_arrives_whole(self):
        terminal = self.chat("-n", "4")
        text = "\n".join(f"line {i} 漢字" for i in range(60))
        terminal.type(b"\x1b[200~")
        for begin in range(0, len(text.encode()), 512):
            terminal.type(text.encode()[begin:begin + 512])
            terminal.pump(0)
        terminal.type(b"\x1b[201~")
        self.ask(terminal, "\r")
        self.assertEqual([text], self.user_texts(terminal, "long"))

    def test_several_lines_by_quotes_by_a_backslash_and_by_alt_enter(self):
        terminal = self.chat("-n", "4")
        terminal.type('"""/one\r')
        terminal.wait_for(r"^\.\Z")
        self.ask(terminal, 'two"""\r')
        terminal.type("three\\\r")
        terminal.wait_for(r"three\\\n\.\Z")
        self.ask(terminal, "four\r")
        self.ask(terminal, "five\x1b\rsix\r")
        self.assertEqual(["/one\ntwo", "three\nfour", "five\nsix"], self.user_texts(terminal, "several"))

    def test_ctrl_c_stops_the_answer_and_not_the_chat(self):
        terminal = self.chat("--ignore-eos", "--no-spec")

        def stopped():
            terminal.type("the thing\r")
            terminal.wait_for(r"> the thing\n[^>]{8}[^>]*\Z")
            with self.system.stopped("target"):  # the answer does not end before the key comes
                terminal.type("\x03")
            terminal.wait_for(r"\n>\Z")
            if re.search(r"cancelled\]\n>\Z", terminal.text()):
                return True
            terminal.type("/clear\r")  # where this test got no processor time the answer may have ended before
            terminal.wait_for(r"/clear\n[^>]*>\Z")
            return False
        harness.wait_for(stopped, "an answer that was stopped")
        saved = self.saved(terminal, "stopped")["messages"]
        self.assertEqual(["user", "assistant"], [m["role"] for m in saved])
        self.assertGreater(len(saved[1]["content"]), 0)
        harness.wait_for(lambda: self.system.status()["requests_active"] == 0, "the request to be cancelled")
        # At the prompt the first one drops the line, the second in a row ends.
        terminal.type("half a line\x03")
        terminal.wait_for(r"\^D ends, and so does a second \^C\n>\Z")
        terminal.type("\x03")
        self.assertEqual(130, terminal.exit_code())

    def test_an_answer_goes_to_the_end_of_the_context(self):
        terminal = self.chat("--ignore-eos", columns=120)
        self.ask(terminal, "the thing\r")
        n_tokens = int(re.search(r"\[(\d+) tokens", terminal.text()).group(1))
        self.assertGreater(n_tokens, 1900)  # of 2048, and the default of a request is 128

        def guessed():  # by guesses that came in time
            if re.search(r"\[\d+ tokens, [\d.]+ tok/s, length; [a-z+]+: \d+ of \d+ guesses right, \d+\.\d tokens a round\]", terminal.text()):
                return True
            terminal.type("/clear\r")
            terminal.wait_for(r"/clear\n[^>]*>\Z")
            self.ask(terminal, "the thing\r")
            return False
        harness.wait_for(guessed, "an answer with guesses")
        terminal.type("more\r")
        terminal.wait_for(r"error: .*\n *try: /clear.*>\Z")
        terminal.type("/clear\r/set max_tokens 4\r")
        self.ask(terminal, "more\r")

    def test_settings_are_checked_shown_saved_and_loaded(self):
        terminal = self.chat("--system", "Be brief.")
        for words, answer in (("/set max_tokens 3", r"max_tokens 3"), ("/set logit_bias {\"5\": -1.5}", None),
                              ("/set stop [\"zq\", \"qz\"]", None), ("/set adaptive off", None)):
            terminal.type(words + "\r")
            terminal.prompt()
            terminal.type("/set\r")
            terminal.wait_for((answer or re.escape(words.split()[1])) + r".*\n>\Z")
        for words, error in (("/set temperature hot", "temperature"), ("/set temperature 101", "100"),
                             ("/set temprature 1", "did you mean temperature"), ("/set messages []", "no setting messages"),
                             ("/spec maybe", "on or off"), ("/nonsense", "no command /nonsense")):
            terminal.type(words + "\r")
            terminal.wait_for(re.escape(words) + r"\n[^>]*" + error + r"[^>]*\n>\Z")
        for words in ("/set prediction abc", "/set proposer prediction"):
            terminal.type(words + "\r")
            terminal.prompt()
        terminal.type("/set prediction\r")  # the proposer needs it
        terminal.wait_for(r"/set prediction\n[^>]*error[^>]*\n>\Z")
        for words in ("/set proposer", "/set prediction"):
            terminal.type(words + "\r")
            terminal.prompt()
        self.ask(terminal, "the thing\r")
        self.assertIn("[3 tokens", terminal.text())
        saved = self.saved(terminal, "settings")
        self.assertEqual(["system", "user", "assistant"], [m["role"] for m in saved["messages"]])
        self.assertEqual([3, ["zq", "qz"], False], [saved["settings"][key] for key in ("max_tokens", "stop", "adaptive")])
        path = os.path.join(self.home, "settings")
        other = self.chat()
        with open(path + ".bad", "w") as bad:  # fine beside messages, and no setting
            json.dump({**saved, "settings": {"tools": "[]"}}, bad)
        other.type(f"/load {path}.bad\r")
        other.wait_for(r"is no conversation: tools[^>]*\n>\Z")
        other.type(f"/save {path}\r")  # not this chat's own
        other.wait_for(r"exists already.*>\Z")
        other.type(f"/load {path}\r")
        other.prompt()
        self.ask(other, "again\r")
        self.assertIn("[3 tokens", other.text())
        again = self.saved(other, "settings")  # loaded from there, so it may be written
        self.assertEqual(saved["messages"], again["messages"][:3])
        # The same file is a conversation for generate.
        done = subprocess.run([PROGRAM, "generate", "--set", f"bus.client={self.system.client}", "--messages", path, "-n", "2", "--json"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual((0, 2), (done.returncode, json.loads(done.stdout)["usage"]["completion_tokens"]), done.stderr)

    def test_tab_completes_commands_and_settings(self):
        terminal = self.chat()
        terminal.type("/se\t")
        terminal.wait_for(r"^> /set\Z")
        terminal.type("temp\t")
        terminal.wait_for(r"^> /set temperature\Z")
        terminal.type("0\r")
        terminal.prompt()
        terminal.type("/s\t\t")
        terminal.wait_for(r"/system.*/save.*^> /s\Z")

    def test_help_names_every_command(self):
        terminal = self.chat(rows=40)
        terminal.type("/help\r")
        terminal.wait_for(r"Ctrl-R[^>]*>\Z")
        for command in ("/help", "/clear", "/system", "/set", "/spec", "/save", "/load", "/quit"):
            self.assertRegex(terminal.text(), rf"(?m)^{command} ")
        self.assertTrue(all(len(line) <= 80 for line in terminal.lines()))
        terminal.type("/quit\r")
        self.assertEqual(0, terminal.exit_code())

    def test_a_narrower_window_wraps_the_line_where_it_now_ends(self):
        terminal = self.chat("-n", "4", columns=60)
        terminal.type("the thing in the winter when snow is there")
        terminal.wait_for("is there")
        terminal.resize(30, 24)
        terminal.type(" and")
        self.ask(terminal, " more\x01X\r")
        terminal.resize(100, 24)
        self.assertEqual(["Xthe thing in the winter when snow is there and more"], self.user_texts(terminal, "narrow"))

    def test_the_terminal_is_as_before_after_every_end(self):
        for keys, code in (("\x04", 0), ("/quit\r", 0), ("\x03\x03", 130)):
            terminal = self.chat()
            self.assertNotEqual(terminal.attributes, termios.tcgetattr(terminal.fd))  # it is being edited
            for key in keys:
                terminal.type(key)
                if key == "\x03" and terminal.text().count("^D ends") == 0:
                    terminal.wait_for(r"\^D ends.*>\Z")
            self.assertEqual(code, terminal.exit_code())
            self.assertEqual(terminal.attributes, termios.tcgetattr(terminal.fd))
            self.assertEqual(terminal.raw.count(b"\x1b[?2004h"), terminal.raw.count(b"\x1b[?2004l"))

    def test_a_signal_that_ends_it_leaves_the_terminal_as_before(self):
        terminal = self.chat()
        terminal.type("half a line")
        terminal.wait_for("half a line")
        os.kill(terminal.pid, signal.SIGTERM)
        self.assertEqual(-signal.SIGTERM, terminal.exit_code())
        self.assertEqual(terminal.attributes, termios.tcgetattr(terminal.fd))

    def test_a_dumb_terminal_has_plain_lines(self):
        terminal = self.chat("-n", "4", environment={"TERM": "dumb"})
        self.ask(terminal, "the thing\n")
        self.assertEqual(["the thing"], self.user_texts(terminal, "dumb"))
        terminal.type("\x03")
        terminal.wait_for(r"\^D ends.*>\Z")
        terminal.type("\x04")
        self.assertEqual(0, terminal.exit_code())

    def test_without_a_terminal_it_reads_lines_and_answers_alone_are_on_stdout(self):
        done = subprocess.run([PROGRAM, "chat", "--set", f"bus.client={self.system.client}", "-t", "0", "-n", "4"], timeout=60,
                              input=('/set max_tokens 2\n"""the\nthing"""\n/save ' + self.home + '/piped\n').encode(), capture_output=True,
                              env={**os.environ, **self.environment()})
        self.assertEqual(0, done.returncode, done.stderr)
        saved = json.loads(pathlib.Path(self.home, "piped").read_text())
        self.assertEqual("the\nthing", saved["messages"][0]["content"])
        self.assertEqual((saved["messages"][1]["content"] + "\n").encode(), done.stdout)
        self.assertNotIn(b"> ", done.stderr)
        self.assertFalse(os.path.exists(self.environment()["XDG_STATE_HOME"]))

    def test_a_models_control_characters_do_not_reach_the_terminal(self):
        # The tiny model writes any byte; more than enough of them are control characters.
        terminal = self.chat("--ignore-eos", "-n", "400", "--set", "log.level=error")
        begin = len(terminal.raw)
        terminal.type("/set temperature 5\r")
        terminal.prompt()
        self.ask(terminal, "the thing\r")
        answer = terminal.raw[begin:].decode()
        answer = answer[answer.index("the thing"):]
        # Those of the editor itself are before and behind the answer.
        answer = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", answer)
        self.assertEqual([], [c for c in answer if (ord(c) < 32 and c not in "\r\n\t") or 0x7f <= ord(c) < 0xa0])
        self.assertIn("\N{REPLACEMENT CHARACTER}", answer)


if __name__ == "__main__":
    unittest.main()
