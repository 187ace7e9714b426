"use strict";

// Shows a figure's value next to the pointer.
const says = document.getElementById("says");
document.addEventListener("mousemove", (event) => {
  const text = event.target.dataset ? event.target.dataset.says : undefined;
  says.style.display = text ? "block" : "none";
  if (!text) return;
  says.textContent = text;
  const left = Math.min(event.clientX + 12, window.innerWidth - says.offsetWidth - 4);
  const above = event.clientY + 18 + says.offsetHeight > window.innerHeight;
  says.style.left = `${Math.max(0, left)}px`;
  says.style.top = `${event.clientY + (above ? -says.offsetHeight - 8 : 18)}px`;
});

// A click on a heading sorts its table by that column, the second one the other way round. What begins with no figure
// ("1xskip", "2 diverged") stays below what does, and empty cells last.
const number = (text) => {
  const found = text.replace(/,(?=\d{3})/g, "").match(/^(?:< )?([+-]?\d+(?:\.\d+)?)(?![\w.]| diverged)/);
  return found ? Number(found[1]) : NaN;
};
const rank = (text) => (text ? (isNaN(number(text)) ? 1 : 0) : 2);
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th");
    const descending = heading.getAttribute("aria-sort") === "ascending";
    for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const body = heading.closest("table").tBodies[0];
    const text = (row) => row.cells[heading.cellIndex].textContent.trim();
    const rows = [...body.rows].sort((a, b) => {
      const [one, two] = [text(a), text(b)];
      const order = number(one) - number(two) || one.localeCompare(two, "en", { numeric: true });
      return rank(one) - rank(two) || (descending ? -order : order);
    });
    body.append(...rows);
  });
}
