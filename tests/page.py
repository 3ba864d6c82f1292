#!/usr/bin/python3
"""Opens the status page of a server in a browser: what it shows, its filter, its refresh, and its width.

  page.py SERVER-PROGRAM

Debian must have chromium-driver and python3-selenium. Exits 1 with the first fact that does not hold.
"""

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE_S = 20
WAITERS = 12
# Text in UTF-8, markup, and the longest key.
KEYS = ["jobs/nightly", "jobs/größe", "jobs/<b>&'\"", "account:" + "x" * 242]


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def connect(port):
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        except ConnectionRefusedError:
            assert time.monotonic() < until, "the server does not listen"
            time.sleep(0.05)


def lock(client, key):
    """Acquires a lock and returns its fence."""
    client.sendall(f"ml {key} T3600 F\r\n".encode())
    reply = client.recv(100).decode()
    assert reply.startswith("HD F"), reply
    return reply[4:].strip()


def browser():
    options = webdriver.ChromeOptions()
    for flag in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options)


def rows(page):
    """The shown locks: the visible text of each cell, by the name of its column."""
    cells = "return [...document.querySelectorAll('table tr')].slice(1).map(row => [...row.cells].map(cell => [cell.dataset.name, cell.innerText]))"
    shown = [dict(row) for row in page.execute_script(cells)]
    return {row["key"]: row for row in shown}


def check(page, url, holder, fences):
    page.get(url)
    shown = rows(page)
    assert set(shown) == set(fences), shown
    for key, fence in fences.items():
        assert fence in shown[key]["fence"], (key, fence, shown[key])
    assert str(WAITERS) in shown[KEYS[0]]["waiters"].split(), shown[KEYS[0]]
    body = page.find_element(By.TAG_NAME, "body").text
    assert f"{WAITERS} waited" in body and "ended without release" in body, body

    page.find_element(By.NAME, "prefix").send_keys("jobs/g")
    page.find_element(By.TAG_NAME, "button").click()
    wait = WebDriverWait(page, PATIENCE_S)
    wait.until(lambda page: set(rows(page)) == {"jobs/größe"}, "the filter shows other locks")
    assert page.find_element(By.NAME, "prefix").get_attribute("value") == "jobs/g"

    # The page reloads itself, with its filter.
    fences["jobs/great"] = lock(holder, "jobs/great")
    wait.until(lambda page: "jobs/great" in rows(page), "the page is not refreshed")
    assert set(rows(page)) == {"jobs/größe", "jobs/great"}, rows(page)

    # A wide table may scroll in a frame of its own; on a narrow screen there is none.
    for width, parts in [(1100, ["html"]), (400, ["html", ".wide"])]:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        page.get(url)
        assert page.execute_script("return innerWidth") == width
        for part in parts:
            wide = "const part = document.querySelector(arguments[0]); return [part.scrollWidth, part.clientWidth]"
            needed, given = page.execute_script(wide, part)
            assert needed <= given, f"at {width} px, {part} needs {needed} px and has {given}"
        shown = rows(page)
        for key, fence in fences.items():
            assert fence in shown[key]["fence"], (width, key, shown)

    errors = [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"]
    assert not errors, errors


def main():
    assert len(sys.argv) == 2, "page.py: which server?"
    port, status = free_port(), free_port()
    with ExitStack() as stack:
        # To a server, variables of this name are options.
        variables = {name: value for name, value in os.environ.items() if not name.startswith("LATCHD_")}
        flags = ["-l", "127.0.0.1", "-p", str(port), "--status", f"127.0.0.1:{status}"]
        server = subprocess.Popen([sys.argv[1], *flags], env=variables)
        stack.callback(server.wait)
        stack.callback(server.terminate)
        holder = stack.enter_context(connect(port))
        fences = {key: lock(holder, key) for key in KEYS}
        for _ in range(WAITERS):
            waiter = stack.enter_context(connect(port))
            waiter.sendall(f"ml {KEYS[0]} w600000\r\n".encode())
        connect(status).close()
        time.sleep(1)
        page = browser()
        stack.callback(page.quit)
        check(page, f"http://127.0.0.1:{status}/", holder, fences)
    print("1 passed, 0 failed")


main()
