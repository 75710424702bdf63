// Copies a page's Markdown. Where the clipboard is refused, the text is selected.
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const text = button.parentElement.querySelector("textarea");
    text.select();
    let copied = false;
    try {
      await navigator.clipboard.writeText(text.value);
      copied = true;
    } catch {
      copied = document.execCommand("copy");
    }
    button.textContent = copied ? "Copied" : "Selected: press Ctrl-C";
  });
}
