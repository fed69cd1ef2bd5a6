// Sorts a table by a column when its heading is clicked.
for (const heading of document.querySelectorAll("th")) {
  heading.addEventListener("click", () => {
    const body = heading.closest("table").tBodies[0];
    const column = heading.cellIndex;
    const down = heading.getAttribute("aria-sort") !== "descending";
    const key = (row) => {
      const cell = row.cells[column];
      if (!cell) return null;
      const text = cell.dataset.v ?? cell.textContent.trim();
      const number = Number(text.replace(/,/g, ""));
      return text === "" ? null : Number.isNaN(number) ? text : number;
    };
    const compare = (a, b) => {
      if (a === null || b === null) return (a === null) - (b === null);
      const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
      return down ? -order : order;
    };
    [...body.rows].map((row) => [key(row), row]).sort((a, b) => compare(a[0], b[0])).forEach(([, row]) => body.append(row));
    for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  });
}
// Opens the contents list only where it stands beside the report.
if (matchMedia("(max-width: 1099px)").matches) document.querySelector("nav > details").open = false;
